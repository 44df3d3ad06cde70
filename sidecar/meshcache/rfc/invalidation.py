"""Invalidation of stored responses by unsafe requests (RFC 9111 section 4.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

if TYPE_CHECKING:
    from meshcache.message import Headers

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "REPORT", "SEARCH"})
"""RFC 9110 section 9.2.1, and those that IANA's registry of methods calls safe besides: they read.

A method that is not known to be safe counts as unsafe (RFC 9111 section 4.4)."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_unsafe(method: str) -> bool:
    """Whether a request of this method may have changed what is stored."""
    return method not in SAFE_METHODS


def invalidates(method: str, status: int) -> bool:
    """Whether this response makes what is stored for its target invalid: a success or redirect of an unsafe method."""
    return is_unsafe(method) and 200 <= status <= 399


def other_targets(*, scheme: str, authority: str, path: str, response_headers: Headers) -> tuple[str, ...]:
    """The paths (with query) that `location` and `content-location` name beside the target itself.

    They may be invalidated along with it. Only those of the target's own origin count: a server must not be able
    to empty the cache of another (section 4.4). What is not a URI reference names nothing.
    """
    base = f"{scheme}://{authority}{path}"
    origin = _origin(_resolve(base, ""))
    if origin is None or not path.startswith("/"):
        return ()
    paths: dict[str, None] = {}
    for name in ("location", "content-location"):
        for value in response_headers.get_all(name):
            target = _resolve(base, value)
            if target is not None and _origin(target) == origin:
                query = f"?{target.query}" if target.query else ""
                paths[(target.path or "/") + query] = None
    paths.pop(path, None)
    return tuple(paths)


def is_target(reference: str | None, *, scheme: str, authority: str, path: str) -> bool:
    """Whether `reference`, the value of a `content-location`, names the target of the request itself."""
    if reference is None or not path.startswith("/"):
        return False
    base = f"{scheme}://{authority}{path}"
    named, target = _resolve(base, reference), _resolve(base, "")
    if named is None or target is None or _origin(named) is None or _origin(named) != _origin(target):
        return False
    # An empty query is another one than none, which the parts of a split URI do not tell.
    return (named.path or "/", named.query, reference.endswith("?")) == (target.path, target.query, path.endswith("?"))


def _resolve(base: str, reference: str) -> SplitResult | None:
    try:
        return urlsplit(urljoin(base, reference))
    except ValueError:
        return None


def _origin(uri: SplitResult | None) -> tuple[str, str, int] | None:
    """Scheme, host and port of a URI (RFC 9110 section 4.3.1), or None when it has no usable ones."""
    if uri is None or "@" in uri.netloc:
        return None
    try:
        port = uri.port
    except ValueError:
        return None
    if port is None:
        port = _DEFAULT_PORTS.get(uri.scheme)
    if port is None or not uri.hostname:
        return None
    return uri.scheme, uri.hostname, port
