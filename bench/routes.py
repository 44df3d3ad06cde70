"""What finding a request's route costs, by how many routes there are and by what tells them apart.

`python -m bench.routes` prints microseconds for each; it needs nothing but the package.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from meshcache.message import Headers
from meshcache.policy.compiled import Condition, Match
from meshcache.policy.routing import RouteIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TARGET: Final = "/v1/service-1/items/7?page=1&format=json"
_FIELDS: Final = Headers(
    [*((f"x-field-{number}", "v") for number in range(12)), ("x-tenant", "tenant-1"), ("accept", "text/html")]
)
_NAMED: Final = Headers([*_FIELDS, ("x-name-1", "1")])
_CALLS: Final = 50

KINDS: Final[dict[str, Callable[[int], Match]]] = {
    "hosts": lambda n: Match(hosts=(f"h{n}.example.com", f"*.h{n}.example.com")),
    "paths": lambda n: Match(exact=f"/v1/service-{n}/items/7"),
    "prefixes": lambda n: Match(prefix=f"/v1/service-{n}"),
    "prefixes of other lengths": lambda n: Match(prefix="/v1" + "/service-1" * n),
    "expressions": lambda n: Match(regex=f"/v1/service-{n}/items/[0-9]+"),
    "expressions that begin alike": lambda n: Match(regex=f"/v1/.*/items/{n + 6}"),
    "methods": lambda n: Match(prefix="/v1", methods=frozenset({"GET"} if n == 1 else {"PUT"})),
    "header values": lambda n: Match(prefix="/v1", headers=(Condition("x-tenant", f"tenant-{n}"),)),
    "header expressions": lambda n: Match(prefix="/v1", headers=(Condition("x-tenant", f"ten.*-{n}", regex=True),)),
    "header names": lambda n: Match(prefix="/v1", headers=(Condition(f"x-name-{n}", "1"),)),
    "parameter values": lambda n: Match(prefix="/v1", query=(Condition("page", str(n)),)),
    "parameter expressions": lambda n: Match(prefix="/v1", query=(Condition("page", f"0*{n}", regex=True),)),
    "header and parameter": lambda n: Match(
        prefix="/v1", headers=(Condition("x-tenant", f"tenant-{n}"),), query=(Condition("format", "json"),)
    ),
}
"""The match of route `n`, by what tells one route from another; the request below fits that of route 1."""


def finder(kind: str, routes: int) -> Callable[[], object]:
    """A search for one request's route among so many."""
    index = RouteIndex((KINDS[kind](number), f"route {number}") for number in range(routes))
    headers = _NAMED if kind == "header names" else _FIELDS
    return lambda: index.find("h1.example.com", _TARGET, "GET", headers)


def least_times(calls: Sequence[Callable[[], object]], rounds: int = 60) -> list[float]:
    """Microseconds that each call takes at least: they are measured in turn, so that a busy machine hurts all alike."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for which, call in enumerate(calls):
            began = time.thread_time_ns()
            for _ in range(_CALLS):
                call()
            best[which] = min(best[which], (time.thread_time_ns() - began) / _CALLS / 1000)
    return best


def main() -> None:
    """Print the table."""
    sizes = (2, 20, 200, 2000)
    print(f"{'us for one request, with so many routes:':<42}" + "".join(f"{size:>8}" for size in sizes) + "   200/2")
    for kind in KINDS:
        times = least_times([finder(kind, size) for size in sizes], rounds=200)
        print(f"{kind:<42}" + "".join(f"{one:8.2f}" for one in times) + f"{times[2] / times[0]:8.2f}")


if __name__ == "__main__":
    main()
