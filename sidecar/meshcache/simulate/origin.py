"""The origin of a replay: what it answers is what the trace says that it answered."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from meshcache.engine.chunks import CHUNK_BYTES, INLINE_BYTES
from meshcache.message import Headers, Response
from meshcache.rfc.fields import format_http_date

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshcache.message import Field
    from meshcache.simulate.trace import TraceRequest

NO_BODY: Final = frozenset({204, 304})
_date = lru_cache(maxsize=64)(format_http_date)


class Origin:
    """Knows the size of each object as it was last seen, and answers by it.

    An object of another size is another version, with another entity tag. A log line with status 304 says that the
    client held the object: it stands for a request of the whole, of the size last seen.
    """

    def __init__(self, *, cache_control: str | None = None, validators: bool = True, object_bytes: int = 4096) -> None:
        """`cache_control` is sent where the trace has none of its own; None for no such field.

        With `validators`, answers with status 200 have an entity tag, and a request that holds it gets a 304.
        `object_bytes` is the size of what the trace gives none for.
        """
        self._cache_control = cache_control
        self._validators = validators
        self._object_bytes = object_bytes
        self._known: dict[tuple[str, str], TraceRequest] = {}

    def seen(self, asked: TraceRequest) -> TraceRequest:
        """What there is at the time of `asked`, which is remembered: the same request with the size that is known."""
        target, status, method = (asked.host, asked.path), asked.status, asked.method
        if status == 304 or asked.size < 0 or method == "HEAD":
            known = self._known.get(target)
            if known is not None:
                return replace(asked, size=known.size, status=known.status if status == 304 else status)
            whole = asked.size if asked.size > 0 else self._object_bytes
            return replace(asked, size=whole, status=200 if status == 304 else status)
        if method == "GET" and status != 206:
            self._known[target] = asked
        return asked

    def known(self, host: str, path: str) -> TraceRequest | None:
        """The request by which that was last seen."""
        return self._known.get((host, path))

    def answer(self, asked: TraceRequest, if_none_match: str | None, now: float) -> Response:
        """The head of the answer to what was `seen`, at `now` (Unix seconds)."""
        status, size = asked.status, asked.size
        fields: list[Field] = [("date", _date(int(now)))]
        control = self._cache_control if asked.cache_control is None else asked.cache_control
        if control is not None:
            fields.append(("cache-control", control))
        if self._validators and status == 200:
            tag = f'"{size:x}"'
            fields.append(("etag", tag))
            if if_none_match is not None and tag in if_none_match:
                return Response(304, Headers(fields), complete=True)
        if status not in NO_BODY:
            fields.append(("content-length", str(size)))
        return Response(status, Headers(fields), complete=not size or asked.method == "HEAD" or status in NO_BODY)


@lru_cache(maxsize=1024)
def _zeros(size: int) -> bytes:
    # Entries of one length share it: thousands of them in memory take no more than one.
    return bytes(size)


def body_of(asked: TraceRequest) -> Iterator[bytes]:
    """The body of the answer to what was `seen`, in parts.

    What is stored by its digest is different for each object and version, as it is in life.
    """
    size = asked.size
    if size <= INLINE_BYTES:
        yield _zeros(size)
        return
    name = f"{asked.host}{asked.path}".encode("utf-8", "surrogatepass")[-4096:]
    for at in range(0, size, CHUNK_BYTES):
        length = min(CHUNK_BYTES, size - at)
        mark = b"%d/%d/%b" % (at, size, name)
        yield (mark + bytes(length))[:length]
