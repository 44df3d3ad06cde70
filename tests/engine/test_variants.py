"""Choosing among a resource's variants."""

from __future__ import annotations

from meshcache.engine.key import CacheKey, variant_key
from meshcache.engine.records import StoredResponse, VariantIndex
from meshcache.engine.variants import MOST_FIELD_SETS, variant_keys, with_variant
from meshcache.message import Headers

KEY = CacheKey(b"s" * 32, b"r" * 16, b"material")


def test_a_variant_is_looked_for_under_every_field_set_the_newest_first() -> None:
    index = VariantIndex(KEY.material, (("accept", "x-a"), ("accept",)))
    asked = Headers([("accept", "text/html , text/plain")])
    both = (("accept", "text/html,text/plain"), ("x-a", None))
    assert variant_keys(KEY, index, asked) == [
        (variant_key(KEY.storage, both), both),
        (variant_key(KEY.storage, both[:1]), both[:1]),
    ]


def variant(*names: str, tags: tuple[str, ...] = ()) -> StoredResponse:
    selecting = tuple((name, "x") for name in names)
    return StoredResponse(
        KEY.material, selecting, 200, (), 0.0, 0.0, 0.0, False, b"", route="r", revision="1", tags=tags
    )


def test_the_newest_field_set_goes_in_front_and_each_is_there_once() -> None:
    index = with_variant(None, variant("a"))
    assert index == VariantIndex(b"material", (("a",),), "r", b"", "1")
    assert with_variant(index, variant("a")) is index
    index = with_variant(index, variant("b"))
    assert index.field_sets == (("b",), ("a",))
    assert with_variant(index, variant("a")).field_sets == (("a",), ("b",))


def test_a_list_has_the_tags_that_all_variants_have() -> None:
    index = with_variant(None, variant("a", tags=("t", "u", "v")))
    assert index.tags == ("t", "u", "v")
    assert with_variant(index, variant("a", tags=("v", "u", "t", "w"))) is index
    index = with_variant(index, variant("a", tags=("w", "u")))
    assert index.tags == ("u",)
    assert with_variant(index, variant("b", tags=("t",))).tags == ()


def test_the_number_of_field_sets_is_bounded() -> None:
    index = None
    for number in range(20):
        index = with_variant(index, variant(f"x-{number}"))
    assert index is not None
    assert [names[0] for names in index.field_sets] == [f"x-{number}" for number in range(19, 19 - MOST_FIELD_SETS, -1)]
