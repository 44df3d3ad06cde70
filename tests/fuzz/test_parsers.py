"""No parser of outside input lets an exception out that it does not announce, or takes more than linear time."""

from __future__ import annotations

import contextlib
import pkgutil
from itertools import product
from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.growth import Pattern, superlinear
from fuzz.parsers import KEYRING, NO_PARSERS, PARSERS, STORAGE_KEY, Parser, modules_with_parsers
from fuzz.protobuf import messages
from meshcache import rfc
from meshcache.engine.records import StoredResponse
from meshcache.tiers.envelope import BadEnvelope, seal, unseal

_MARKS = [*",;=:\"\\'()<>[]{}@?*%+-_./&#!| \t0159aZ", "\x00", "\r\n", "\x7f", "\xff", "\u20ac"]
_WORDS = [
    *("max-age", "s-maxage", "no-cache", "private", "max-stale", "2147483648", "99999999999999999999", "1e9", "-1"),
    *("W/", "bytes=", "0-", "-5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "gmt", "utc"),
    *(
        "http://",
        "//",
        "a.b",
        "..",
        "%2e",
        "%00",
        "host=",
        "proto=",
        "&",
        "utm_x",
        "kind: CachePolicy",
        "\n",
        "- ",
        "~",
    ),
    *('\\"', '""', '="', ", ,", "*", "5m", "64Mi", "10%", "10.0.0.0/8", "[::1]:80"),
]
_SOUP = st.lists(st.sampled_from([*_MARKS, *_WORDS]), max_size=40).map("".join)
TEXTS = st.one_of(_SOUP, st.text(st.characters(max_codepoint=255), max_size=60), st.text(max_size=20))

UNITS = [
    *('"', ",", "\\", "=", ";", ":", "(", ")", "[", "]", "{", "}", "<", "*", "%", "+", "-", ".", "/", "&", "?", "#"),
    *(" ", "\t", "\n", "0", "9", "a", "Z", "\x00", "\xff", ", ", '",', ',"', '\\"', '"\\', "a=", '="', 'a="b",', "a,"),
    *(
        "a b ",
        "0,",
        "1-2,",
        ";a",
        "&a=",
        "=;",
        "%2",
        "%2e",
        "../",
        "/./",
        'W/"',
        'W/"a", ',
        "max-age=1,",
        'a="\\',
        "[[",
    ),
    *("- ", "a: ", "? ", "{a: ", "[a, ", "&a ", "*a ", "|\n", '"a" ', "host=a;", "a=b; ", "(a ", "1.", "1e", "::", "é"),
]
"""What a text is grown by: everything that a parser could stumble over again and again."""
_EXAMPLES = settings().max_examples
ENDS = ("", "!", '"') if _EXAMPLES > 100 else ("!",)


def _named(parsers: tuple[Parser, ...] | list[Parser]) -> list[Any]:
    return [pytest.param(parser, id=parser.name.replace(" ", "-")) for parser in parsers]


def survives(parser: Parser, given_input: str | bytes) -> None:
    with contextlib.suppress(*parser.raises):
        parser.read(given_input)


@pytest.mark.parametrize("parser", _named([parser for parser in PARSERS if not parser.binary]))
@given(data=st.data())
@settings(deadline=None)
def test_no_text_gets_an_exception_out(parser: Parser, data: st.DataObject) -> None:
    survives(parser, data.draw(st.sampled_from(parser.starts)) + data.draw(TEXTS))


@pytest.mark.parametrize("parser", _named([parser for parser in PARSERS if parser.binary]))
@given(data=st.data())
@settings(deadline=None)
def test_no_bytes_get_an_exception_out(parser: Parser, data: st.DataObject) -> None:
    survives(parser, data.draw(st.sampled_from(parser.starts)).encode("latin-1") + data.draw(st.binary(max_size=200)))


@given(messages(ProcessingRequest, TEXTS))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_message_of_envoy_gets_an_exception_out(message: ProcessingRequest) -> None:
    parser = next(parser for parser in PARSERS if parser.name == "ext_proc message")
    parser.read(message.SerializeToString())


@given(at=st.integers(0, 400), mask=st.integers(1, 255), cut=st.integers(0, 400))
@settings(deadline=None)
def test_what_is_not_the_envelope_that_was_sealed_is_refused(at: int, mask: int, cut: int) -> None:
    record = StoredResponse(b"key", (("accept", None),), 200, (("etag", '"x"'),), 1.0, 2.0, 0.0, False, b"b" * 150)
    value = bytearray(seal(record, storage_key=STORAGE_KEY, epoch=b"e" * 8, written_at=1.0, keyring=KEYRING))
    assert unseal(bytes(value), storage_key=STORAGE_KEY, keyring=KEYRING).record == record
    value[at % len(value)] ^= mask
    for broken in (bytes(value), bytes(value[: cut % len(value)]), bytes(value) + b"x"):
        with pytest.raises(BadEnvelope):
            unseal(broken, storage_key=STORAGE_KEY, keyring=KEYRING)


@pytest.mark.slow
@pytest.mark.parametrize("parser", _named(list(PARSERS)))
def test_no_repetition_takes_more_than_linear_time(parser: Parser) -> None:
    found = []
    for start, unit, end in product(parser.starts, UNITS, ENDS):
        slow = slowness(parser, start, unit, end)
        if slow is not None:
            found.append(slow)
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("parser", _named(list(PARSERS)))
@given(data=st.data())
@settings(deadline=None, max_examples=max(1, _EXAMPLES // 12), suppress_health_check=[HealthCheck.too_slow])
def test_no_repetition_of_anything_takes_more_than_linear_time(parser: Parser, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(parser.starts)) + data.draw(_SOUP)
    assert slowness(parser, start, data.draw(_SOUP.filter(bool)), data.draw(_SOUP)) is None


def slowness(parser: Parser, start: str, unit: str, end: str) -> str | None:
    """What the parser took for `start`, many a `unit`, and `end`, if that grew too fast."""

    def read(given_input: str | bytes) -> None:
        survives(parser, given_input)

    if not parser.binary:
        return superlinear(read, Pattern(start, unit, end))
    before, again, after = (part.encode("latin-1", "ignore") for part in (start, unit, end))
    return superlinear(read, Pattern(before, again or b"x", after))


def test_the_measure_tells_a_square_from_a_line() -> None:
    def square(text: str) -> int:
        return sum(text.count("b") for _ in range(len(text) // 16))

    assert superlinear(square, Pattern("", "a", "")) is not None
    assert superlinear(lambda text: [ord(character) for character in text], Pattern("", "a", "")) is None


def test_every_module_of_rules_has_its_parsers_here() -> None:
    modules = {module.name for module in pkgutil.iter_modules(rfc.__path__)}
    assert modules == modules_with_parsers() | set(NO_PARSERS), "tests/fuzz/parsers.py: PARSERS or NO_PARSERS"
    assert not modules_with_parsers() & set(NO_PARSERS)
