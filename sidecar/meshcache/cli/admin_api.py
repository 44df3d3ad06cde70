"""The admin API of a running meshcache, as commands ask it: every trouble is a `CommandError` of one line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from meshcache.cli.app import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

T = TypeVar("T")


class AdminApi:
    """Found by the data folder, unless socket and token are elsewhere."""

    def __init__(self, data: Path, socket: Path | None, token_file: Path | None = None) -> None:
        from meshcache.admin.token import FILE_NAME
        from meshcache.cli.paths import admin_socket

        self._socket = socket or admin_socket(data)
        self._token_file = token_file or data / FILE_NAME

    @contextmanager
    def client(self, timeout: float, at_stake: str = "") -> Iterator[httpx.Client]:
        """Ask with paths alone, each within `timeout` seconds; `at_stake` is what nobody knows after that."""
        import httpx

        transport = httpx.HTTPTransport(uds=str(self._socket))
        try:
            with httpx.Client(transport=transport, base_url="http://meshcache", timeout=timeout) as client:
                yield client
        except httpx.TimeoutException:
            unknown = f": {at_stake}" if at_stake else ""
            raise CommandError(f"{self._socket} did not answer within {timeout:g} s{unknown}") from None
        except (httpx.HTTPError, OSError):
            reason = f"no meshcache answers on {self._socket}: give its --data or --socket"
            raise CommandError(reason) from None

    def credentials(self) -> dict[str, str]:
        """The header with the token, which what changes something wants.

        Ask for the status first: without a meshcache there is no token either, and that is the better reason.
        """
        from meshcache.admin.token import Token, TokenError

        try:
            return Token.load(self._token_file).header
        except TokenError as error:
            raise CommandError(f"no token for this meshcache: {error}") from error


def decoded(body: bytes, kind: type[T]) -> T:
    """An answer as `kind`."""
    import msgspec

    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise CommandError(f"meshcache answered what this release does not understand: {error}") from error


def error_of(answer: httpx.Response) -> str:
    """What a refusal says is wrong; empty where it does not say it as the admin API does."""
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return ""
