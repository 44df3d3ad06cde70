"""The token of the admin API."""

import errno
import os
import stat

import pytest

from meshcache.admin.token import Token, TokenError


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path):
    path = tmp_path / "admin.token"
    made = Token.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Token.load_or_create(path).header == Token.load(path).header == made.header
    assert Token.load_or_create(tmp_path / "other").header != made.header
    assert made.name == "admin.token"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_folder_in_which_no_file_may_have_two_names(tmp_path, monkeypatch, number):
    def refused(*_names):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "admin.token"
    made = Token.load_or_create(path)
    assert Token.load(path).header == made.header
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "admin.token"

    def killed(_descriptor):
        # What it has written so far may be lost.
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            Token.load_or_create(path)
    assert not path.exists()
    assert Token.load_or_create(path).header == Token.load(path).header
    assert list(tmp_path.iterdir()) == [path]


def test_what_opens(tmp_path):
    path = tmp_path / "t"
    path.write_text("0123456789abcdef\n")
    token = Token.load(path)
    assert token.opens("Bearer 0123456789abcdef")
    assert token.opens("bearer  0123456789abcdef")
    for wrong in (None, "", "Bearer", "Bearer ", "Basic 0123456789abcdef", "Bearer 0123456789abcdeF", "Bearer \u00e9"):
        assert not token.opens(wrong)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5000, b"\xff" * 32, b"0123456789\nabcdefghijk"])
def test_a_file_that_holds_no_token_is_refused_without_a_word_of_it(tmp_path, content):
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TokenError, match=r"t: ") as caught:
        Token.load_or_create(path)
    assert "short" not in str(caught.value).removeprefix(str(path))


def test_a_folder_that_is_not_there(tmp_path):
    for load in (Token.load, Token.load_or_create):
        with pytest.raises(TokenError, match="No such file"):
            load(tmp_path / "no" / "t")
