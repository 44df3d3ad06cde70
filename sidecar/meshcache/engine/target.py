"""What a request has settled of what will be stored: where, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from meshcache.engine.account import Account
    from meshcache.engine.epochs import Epochs
    from meshcache.engine.key import CacheKey
    from meshcache.engine.records import VariantIndex
    from meshcache.message import Headers, Request
    from meshcache.policy.compiled import Policy
    from meshcache.policy.snapshot import Selection


class Target(msgspec.Struct, frozen=True):
    """Where and for whom a response is stored: what the request has settled."""

    request: Request
    request_time: float
    selection: Selection
    policy: Policy
    key: CacheKey
    revision: str
    """Of the application, as it is in the key."""
    epochs: Epochs
    index: VariantIndex | None
    """The resource's variants as the look-up saw them."""
    subject: bytes = b""
    """Keyed hash of the person whom the key holds; empty for none."""
    account: Account | None = None
    """What the request shows of an experiment; what is fetched for it, or behind its back, is told to it."""

    def at(self, epochs: Epochs, now: float) -> Target:
        """The same for a request that goes out `now`, under the epochs read for it."""
        return msgspec.structs.replace(self, epochs=epochs, request_time=now)

    def asking(self, headers: Headers) -> Target:
        """The same for a GET with these header fields."""
        return msgspec.structs.replace(self, request=self.request.as_get(headers))
