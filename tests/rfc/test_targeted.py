import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.cache_control import CacheControl
from meshcache.rfc.structured import LONGEST, dictionary
from meshcache.rfc.targeted import capability, response_directives

TARGETS = ("own-cache-control", "cdn-cache-control", "surrogate-control")
FALLBACK = CacheControl(max_age=7)


def ruling(*fields: tuple[str, str]) -> CacheControl:
    control, expires = response_directives(
        Headers([("cache-control", "max-age=7"), ("expires", "0"), *fields]), TARGETS
    )
    assert (expires is None) is (control != FALLBACK), "expires is ignored together with cache-control"
    return control


def cdn(value: str) -> CacheControl:
    return ruling(("cdn-cache-control", value))


def surrogate(value: str) -> CacheControl:
    return ruling(("surrogate-control", value))


def test_without_a_target_cache_control_rules() -> None:
    assert ruling() == FALLBACK
    assert ruling(("other-cache-control", "no-store")) == FALLBACK


def test_the_first_of_the_list_rules_alone() -> None:
    fields = [("surrogate-control", "no-store"), ("cdn-cache-control", "max-age=5"), ("own-cache-control", "private")]
    assert ruling(*fields) == CacheControl(private=True)
    assert ruling(*fields[:2]) == CacheControl(max_age=5)
    assert ruling(*fields[:1]) == CacheControl(no_store=True)
    assert ruling(("own-cache-control", "="), *fields[:2]) == CacheControl(max_age=5), "malformed: the next one"


def test_a_targeted_field_may_say_nothing_of_freshness() -> None:
    assert cdn("foo") == CacheControl()


def test_every_directive() -> None:
    assert cdn(
        "max-age=1, s-maxage=2, stale-while-revalidate=3, stale-if-error=4, no-store, must-revalidate,"
        " proxy-revalidate, public, must-understand, immutable, no-cache, private, extension=(a b)"
    ) == CacheControl(
        max_age=1,
        s_maxage=2,
        stale_while_revalidate=3,
        stale_if_error=4,
        no_store=True,
        must_revalidate=True,
        proxy_revalidate=True,
        public=True,
        must_understand=True,
        immutable=True,
        no_cache=True,
        private=True,
    )


@pytest.mark.parametrize(
    "value",
    ["", "  ", "max-age=10, &&&&&", 'max-age="10"', "max-age", "max-age=?1", "max-age=1.5", "max-age=-1", "max-age=a",
     "MaX-aGe=10", "max-age =10", "max-age= 10", "max-age=10,", "max-age=9999999999999999", "a" * (LONGEST + 1)],
)  # fmt: skip
def test_a_malformed_field_counts_as_absent(value: str) -> None:
    assert cdn(value) == FALLBACK


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("max-age=99999999999", CacheControl(max_age=2**31)),
        ("max-age=1, max-age=2", CacheControl(max_age=2)),  # a dictionary holds the last (RFC 9651 section 4.2.2)
        ("max-age=5;x=1", CacheControl(max_age=5)),
        ("no-store=?0, public=?0, max-age=5", CacheControl(max_age=5)),
        ("no-store=1, public=1", CacheControl(no_store=True)),
        ('private="X-A, x-b"', CacheControl(private_fields=("x-a", "x-b"))),
        ("no-cache=x-a", CacheControl(no_cache_fields=("x-a",))),
        ('private="a b"', CacheControl(private=True)),
        ('private="vary"', CacheControl(private=True)),
        ("private=5", CacheControl(private=True)),
        ("private=?0, max-age=1", CacheControl(max_age=1)),
    ],
)
def test_values_and_parameters(value: str, expected: CacheControl) -> None:
    assert cdn(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("max-age=60", CacheControl(max_age=60)),
        ("MaX-aGe=60", CacheControl(max_age=60)),
        ("foobar, max-age=60", CacheControl(max_age=60)),
        ("max-age=60+30", CacheControl(max_age=60, stale_while_revalidate=30)),
        ("max-age=60;meshcache", CacheControl(max_age=60)),
        ("max-age=60;other", FALLBACK),
        ("max-age=60;other;meshcache", CacheControl(max_age=60)),
        ("max-age=60, max-age=5;meshcache", CacheControl(max_age=5)),
        ("no-store;other, max-age=60", CacheControl(max_age=60)),
        ("no-store, max-age=60;meshcache", CacheControl(no_store=True, max_age=60)),
        ('private="a;b", max-age=60', CacheControl(private=True, max_age=60)),
        ("foo", FALLBACK),
        ("", FALLBACK),
        ("max-age =60", CacheControl(max_age=0, invalid_lifetime=True)),
    ],
)
def test_surrogate_control(value: str, expected: CacheControl) -> None:
    assert surrogate(value) == expected


def test_capability_is_told_to_origins_that_may_use_it() -> None:
    assert capability(Headers(), ("cdn-cache-control",)) is None
    assert capability(Headers(), TARGETS) == ("surrogate-capability", 'meshcache="Surrogate/1.0"')
    before = Headers([("surrogate-capability", 'edge="Surrogate/1.0"')])
    assert capability(before, TARGETS) == (
        "surrogate-capability",
        'edge="Surrogate/1.0", meshcache="Surrogate/1.0"',
    )


@given(st.text(max_size=60), st.sampled_from(TARGETS))
def test_reading_is_total(value: str, name: str) -> None:
    ruling((name, value))


@pytest.mark.parametrize(
    "value", ["a=@999999999999999", "a=:AAA:", 'a=%"%ff"', "a=(((", "a=1e5", "\xff", "\u0100", "a;" * 9]
)
def test_no_error_of_the_library_comes_through(value: str) -> None:
    dictionary(value)
