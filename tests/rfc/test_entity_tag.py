import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.entity_tag import EntityTag, parse_entity_tag, parse_entity_tags, strong_match, weak_match


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a"', EntityTag(False, '"a"')),
        ('W/"a"', EntityTag(True, '"a"')),
        ('""', EntityTag(False, '""')),
        (r'"a\"', EntityTag(False, r'"a\"')),
        ('"a,b"', EntityTag(False, '"a,b"')),
        ('"\xfc"', EntityTag(False, '"\xfc"')),
        ("abc", EntityTag(False, '"abc"')),
        (None, None),
        ("", None),
        ("*", None),
        ('w/"a"', EntityTag(True, '"a"')),
        ('W"a"', EntityTag(True, '"a"')),
        (r'W\"a"', EntityTag(True, '"a"')),
        ('V/"a"', None),
        ('W//"a"', None),
        ('"a', None),
        ('"a b"', None),
        ("a b", None),
        ('"a", "b"', None),
        ('"a"\n', None),
    ],
)
def test_parse_entity_tag(text: str | None, expected: EntityTag | None) -> None:
    assert parse_entity_tag(text) == expected


def test_lists_pass_over_what_is_no_tag() -> None:
    tags = parse_entity_tags(r'"a", W/"b",, w/"c", "d\", "e,f", g')
    assert tags == [
        EntityTag(False, '"a"'),
        EntityTag(True, '"b"'),
        EntityTag(True, '"c"'),
        EntityTag(False, r'"d\"'),
        EntityTag(False, '"e,f"'),
        EntityTag(False, '"g"'),
    ]


def test_comparison_table_of_rfc_9110_section_8_8_3_2() -> None:
    weak_one, weak_two, strong_one = EntityTag(True, '"1"'), EntityTag(True, '"2"'), EntityTag(False, '"1"')
    assert (strong_match(weak_one, weak_one), weak_match(weak_one, weak_one)) == (False, True)
    assert (strong_match(weak_one, weak_two), weak_match(weak_one, weak_two)) == (False, False)
    assert (strong_match(weak_one, strong_one), weak_match(weak_one, strong_one)) == (False, True)
    assert (strong_match(strong_one, strong_one), weak_match(strong_one, strong_one)) == (True, True)


@given(st.text(max_size=60))
def test_parsing_is_total(value: str) -> None:
    parse_entity_tag(value)
    parse_entity_tags(value)
