"""Regular expressions: RE2's, on bytes, many in one pass, within bounds of time and memory."""

from __future__ import annotations

import time
from random import Random

import pytest

from meshcache.policy.patterns import PatternSets, as_sent, check_pattern, fits, literal_range


def test_a_set_says_what_its_members_say() -> None:
    patterns = ("/a.*", "/a", ".*b", "", "caf.", r"/\d+", "(?i)/A")
    sets = PatternSets()
    found = sets.of(patterns)
    assert sets.of(list(patterns)) is found
    sets.compile()
    for text in ("/a", "/ab", "/b", "", "/7", as_sent("café"), "caf\xe9", "x\u20ac"):
        assert sorted(found.fitting(text)) == [number for number, one in enumerate(patterns) if fits(one, text)], text


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a(?!b)", "invalid perl operator: (?!; RE2 has no look-ahead: a more specific route"),
        ("(?<=a)b", "RE2 has no look-behind"),
        (r"(a)\1", "RE2 has no references to groups"),
        ("a++", "two repetitions in a row"),
        ("*", "put .* for any text"),
        ("a{1001}", "RE2 repeats at most 1000 times"),
        (r"\pL{1000}", "too large"),
        ("[", "not a regular expression of RE2: missing ]: ["),
    ],
)
def test_what_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match="regular expression") as caught:
        check_pattern(pattern)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [("/v1/x", b"/v1/x", b"/v1/x"), ("^/v1/.*$", b"/v1/", b"/v10"), ("(?i)/v1", b"/V1", b"/v1")],
)
def test_where_its_texts_lie(pattern: str, least: bytes, most: bytes) -> None:
    assert literal_range(pattern) == (least, most)


def test_a_set_that_needs_more_memory_gets_it() -> None:
    sets = PatternSets()
    large = sets.of([f"/{number}/.{{1000}}" for number in range(60)])
    many = [sets.of([f"/{number}"]) for number in range(200)]
    sets.compile()
    assert large.fitting("/59/" + "x" * 1000) == [59]
    assert [one.fitting("/7") for one in many[6:9]] == [[], [0], []]


def test_no_text_takes_more_than_linear_time() -> None:
    sets = PatternSets()
    found = sets.of(["/(a*)*b", "/(a|a)*c", "/(.*a){20}", "/.*.*.*=.*d", "/(a?){50}a{50}"])
    sets.compile()

    def seconds(size: int) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.thread_time()
            found.fitting("/" + "a" * size)
            best = min(best, time.thread_time() - began)
        return best

    seconds(1_000)
    assert seconds(200_000) < 0.2


def test_what_one_pass_is_too_slow_for_is_divided() -> None:
    letters = "abcdefghijklmn"
    pairs = [f"{first}{second}" for first in letters for second in letters]
    sets = PatternSets()
    floating = sets.of([f".*{pair}.*" for pair in pairs])
    rooted = sets.of([f"/{pair}/[a-z]+/[0-9]+" for pair in pairs])
    sets.compile()
    random = Random(1)
    texts = ["/" + "".join(random.choices(letters, k=30)) for _ in range(2000)]
    for text in texts:
        assert sorted(floating.fitting(text)) == [number for number, pair in enumerate(pairs) if pair in text]
    assert 2 < floating.passes <= len(pairs)
    for text in texts:
        pair = text[1:3]
        assert rooted.fitting(f"/{pair}/{text[1:]}/7") == [pairs.index(pair)]
    assert rooted.passes == 1
