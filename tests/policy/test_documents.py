"""YAML with positions: what is read, and how everything else is refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshcache.policy.documents import MAX_FILE_BYTES, Documents, parse_documents, parse_file, resolve_plain


def refused(text: str) -> str:
    documents, errors = parse_file("a.yaml", text)
    assert documents == []
    assert len(errors) == 1
    return str(errors[0])


def test_positions_of_keys_and_values() -> None:
    text = "# first\nkind: X\nspec:\n  list:\n    - {a: 1}\n    - b: two\n"
    (document,), errors = parse_file("a.yaml", text)
    assert errors == []
    assert document.data == {"kind": "X", "spec": {"list": [{"a": 1}, {"b": "two"}]}}
    assert document.values[()] == (2, 1)
    assert document.keys[("spec", "list", 1, "b")] == (6, 7)
    assert document.values[("spec", "list", 1, "b")] == (6, 10)
    assert document.values[("spec", "list", 0)] == (5, 7)


def test_an_error_at_a_path_that_is_not_there_stands_at_its_parent() -> None:
    (document,), _ = parse_file("a.yaml", "kind: X\nspec:\n  a: 1\n")
    assert str(document.error(("spec", "b", 0, "c"), "is missing")) == "a.yaml:3:3: spec.b[0].c: is missing"


def test_several_documents_and_empty_ones() -> None:
    documents, errors = parse_file("a.yaml", "---\n# nothing\n---\na: 1\n---\n---\nb: 2\n---\n")
    assert errors == []
    assert [document.data for document in documents] == [{"a": 1}, {"b": 2}]
    assert parse_file("a.yaml", "") == ([], [])
    assert parse_file("a.yaml", "# only a comment\n") == ([], [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &x 1\nb: *x\n", "a.yaml:2:4: b: aliases (*name) are not allowed"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "a.yaml:4:3: b.c: this key is given twice"),
        ("null\n", "a.yaml:1:1: expected a mapping"),
        ("~\n", "a.yaml:1:1: expected a mapping"),
        ("just text\n", "a.yaml:1:1: expected a mapping"),
        ("- a\n", "a.yaml:1:1: expected a mapping"),
        ("a:\n", "a.yaml:1:3: a: has no value"),
        ("a: {b: null}\n", "a.yaml:1:8: a.b: has no value"),
        ("a: [1, ~]\n", "a.yaml:1:8: a[1]: has no value"),
        ("a: !!python/object/apply:os.system [ls]\n", "a.yaml:1:4: a: the tag"),
        ("a: !!binary aGk=\n", "a.yaml:1:4: a: the tag"),
        ("!!set {a}\n", "a.yaml:1:1: the tag"),
        ("? {a: 1}\n: 2\n", "a.yaml:1:3: a key must be plain text"),
        ("? [a]\n: 2\n", "a.yaml:1:3: a key must be plain text"),
        ("a:\n\t- b\n", "a tab is used for indentation"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: 'x\n", "not valid YAML"),
        ("a: b: c\n", "a.yaml:1:5: not valid YAML"),
        ("a: \x01\n", "a.yaml:1:4: a control character"),
        ("é: ü\nb: \x00\n", "a.yaml:2:4: a control character"),
        ("%YAML 9.9\n---\na: 1\n", "not valid YAML"),
        ("a: \ud800\n", "not valid UTF-8"),
        ("x: 1\na:\u00a0b\nc: d\n", "a.yaml:2:3: the character U+00A0, which looks like a blank"),
        ("x: 1\ne:\u200bf\n\ng: h\n", "a.yaml:2:3: the character U+200B, which looks like a blank"),
        ("a: 1\n...\nb: 1\n", "(--- goes between two documents)"),
        ("%YAML 1.3\n---\na: 1\n", "a.yaml:1:1: not valid YAML: found incompatible YAML document (leave the line out"),
        ("a: {{ .Values.x }}\n", "a key must be plain text (text that begins with { or [ goes in quotes)"),
        ("\x7fELF\x02\x01", "a control character"),
    ],
)
def test_refused_with_its_place(text: str, told: str) -> None:
    assert told in refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_expands() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
    )
    assert "aliases" in refused(bomb)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_bounded(opening: str) -> None:
    began = time.thread_time()
    message = refused("a:\n  " + opening * 100_000)
    assert "nested deeper than" in message or "plain text" in message or "not valid YAML" in message
    assert time.thread_time() - began < 2


def test_size_is_bounded() -> None:
    assert "larger than" in refused("#" * (MAX_FILE_BYTES + 1))
    assert "more than 20000 keys" in refused("a: [" + "1," * 100_000 + "]")


def test_scalars_follow_the_core_schema_of_yaml_1_2() -> None:
    text = "a: [off, yes, 1:30, 010, 2024-01-01, true, 12, -3, 1.5, .inf, '12', \"true\", !!str 12, 1_000, 0x10]\n"
    (document,), _ = parse_file("a.yaml", text)
    assert document.data["a"] == [
        *("off", "yes", "1:30", "010", "2024-01-01", True, 12, -3, 1.5, ".inf", "12", "true", "12", "1_000", "0x10")
    ]


@example("{0\n\n0")
@given(st.text(max_size=200) | st.text(alphabet="[]{}:,-?&*!|>'\"%@`#\n\t ab1~", max_size=200))
@settings(max_examples=400)
def test_no_text_raises(text: str) -> None:
    documents, errors = parse_file("a.yaml", text)
    assert not (documents and errors)
    for error in errors:
        assert error.line <= text.count("\n") + text.count("\r") + 3
        assert "\n" not in str(error)


@given(st.text(max_size=30))
def test_plain_scalars_never_raise(text: str) -> None:
    assert isinstance(resolve_plain(text), str | int | float | bool)


def test_long_numbers_stay_text() -> None:
    assert resolve_plain("9" * 5000) == "9" * 5000


def test_the_digest_follows_names_and_contents_and_not_the_order() -> None:
    one = Documents.of([("a", "x"), ("b", "y")])
    assert one.digest == Documents.of([("b", "y"), ("a", "x")]).digest
    assert one.files == (("a", "x"), ("b", "y"))
    others = [[("a", "xb"), ("", "y")], [("a", "x")], [("a", "x"), ("b", "z")], [("a", "x"), ("c", "y")], []]
    assert one.digest not in {Documents.of(files).digest for files in others}


def test_one_bad_file_does_not_hide_the_errors_of_another() -> None:
    documents, errors = parse_documents(Documents.of([("a", "a: ["), ("b", "b: 1"), ("c", "c: *x")]))
    assert [document.file for document in documents] == ["b"]
    assert [error.file for error in errors] == ["a", "c"]
