"""Who asks, in a replay: the user of a trace becomes what the policies look for in a request."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from meshcache.message import Headers, Token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.policy.snapshot import Snapshot
    from meshcache.simulate.trace import TraceRequest

_ALWAYS = (("x-forwarded-proto", "http"),)
"""What Envoy adds to every request."""
_NOBODY = Headers(_ALWAYS)


class Callers:
    """Gives a trace's requests the header fields, cookies and claims by which a policy set knows their user."""

    def __init__(self, headers: Iterable[str] = (), cookies: Iterable[str] = (), claims: Iterable[str] = ()) -> None:
        """The names under which the user is sent."""
        self._headers = tuple(sorted(set(headers)))
        self._cookies = tuple(sorted(set(cookies)))
        self._claims = tuple(sorted(set(claims)))
        self._known = lru_cache(maxsize=65536)(self._of_user)

    @classmethod
    def of_policies(cls, snapshot: Snapshot) -> Callers:
        """For the units of the experiments, and for who a caller is."""
        units = [unit for experiment in snapshot.experiments for unit in experiment.units]
        rules = snapshot.config.identity
        sources = [source for source in (rules.subject, rules.tenant, rules.session) if source is not None]
        return cls(
            headers=[unit.name for unit in units if unit.kind == "header"],
            cookies=[unit.name for unit in units if unit.kind == "cookie"],
            claims=[source.name for source in sources if source.kind == "jwtClaim"],
        )

    def of(self, asked: TraceRequest) -> tuple[Headers, tuple[Token, ...]]:
        """Header fields and verified tokens of a request."""
        if not asked.user:
            return (Headers((*_ALWAYS, *asked.fields)) if asked.fields else _NOBODY), ()
        headers, tokens = self._known(asked.user)
        return (Headers((*headers.fields, *asked.fields)) if asked.fields else headers), tokens

    def _of_user(self, user: str) -> tuple[Headers, tuple[Token, ...]]:
        fields = [*_ALWAYS, *((name, user) for name in self._headers)]
        if self._cookies:
            fields.append(("cookie", "; ".join(f"{name}={user}" for name in self._cookies)))
        if not self._claims:
            return Headers(fields), ()
        digest = blake2b(user.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return Headers(fields), (Token("trace", dict.fromkeys(self._claims, user), digest),)
