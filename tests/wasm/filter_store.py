"""The filter's store as it is built for tests: `wasm/tests/store.zig` in wasmtime, which drives itself."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from random import Random
from typing import Any, Final

from filter_rules import CACHE, ROOT, zig

MIB: Final = 1 << 20
TOLERANCE: Final = 1.1


@cache
def _compiled() -> tuple[Any, Any]:
    import wasmtime

    sources = sorted((*ROOT.glob("src/*.zig"), ROOT / "tests" / "store.zig"))
    digest = hashlib.blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8).hexdigest()
    path = CACHE / f"store-{digest}.wasm"
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}.wasm")
        zig(
            *("build-exe", "-target", "wasm32-freestanding", "-mcpu=lime1", "-O", "ReleaseSafe", "-fstrip"),
            *("-fno-entry", "-rdynamic", "--stack", "65536", "--name", "store", f"-femit-bin={made}", "--dep", "store"),
            *(f"-Mroot={ROOT / 'tests' / 'store.zig'}", f"-Mstore={ROOT / 'src' / 'store.zig'}"),
        )
        made.rename(path)
    engine = wasmtime.Engine()
    return engine, wasmtime.Module.from_file(engine, str(path))


class FilterStore:
    """A store in a module of its own. Any trap raises."""

    def __init__(self, budget: int, seed: int = 1) -> None:
        import wasmtime

        engine, module = _compiled()
        self._store = wasmtime.Store(engine)
        self._exports: Any = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._highest = budget
        self._call("start", budget, seed)

    def configure(self, budget: int, pools: int) -> None:
        """A new plan: so many pools of arms, each a tenth of the budget, some of them the same as before."""
        self._highest = max(self._highest, budget)
        self._call("configure", budget, pools)

    def churn(self, operations: int, keys: int) -> int:
        """Random operations on so many keys; how many answers were not what had been put in."""
        return self._call("churn", operations, keys)

    def request(self, number: int, length: int) -> bool:
        """Whether an object is there; it is put in if not."""
        return bool(self._call("request", number, length))

    def within(self) -> bool:
        """Whether the module's memory, all of it, is what the budget allows."""
        return self.memory <= self._highest * TOLERANCE

    @property
    def memory(self) -> int:
        """Bytes of memory of the module."""
        return int(self._exports["memory"].data_len(self._store))

    @property
    def entries(self) -> int:
        """Entries that are held."""
        return self._call("entries")

    @property
    def evictions(self) -> int:
        """Entries that had to go for others."""
        return self._call("evictions")

    @property
    def hits(self) -> int:
        """Answers that `churn` has found."""
        return self._call("found")

    def _call(self, name: str, *arguments: int) -> int:
        return int(self._exports[name](self._store, *arguments) or 0)


def soak(operations: int, random: Random) -> dict[str, float]:
    """So many random operations, on small and large budgets together, with new plans in between.

    Raises `AssertionError` when an answer is not what was put in, or the module's memory is above its budget by more
    than 10%.
    """
    # Keys so that much of what is asked for is there, and there are more than fit.
    budgets = {1: 600, 4: 4_000, 64: 60_000, 256: 250_000, 1024: 900_000}
    hits = evictions = 0
    most = 0.0
    for mebibytes, keys in budgets.items():
        store = FilterStore(mebibytes * MIB, random.getrandbits(32))
        for turn in range(100):
            # In between other sizes, of which the first is the largest.
            if turn % 10 == 5:
                store.configure(random.randint(0, mebibytes * MIB), random.randint(0, 9))
            elif turn % 10 == 0:
                store.configure(mebibytes * MIB, random.randint(0, 9))
            wrong = store.churn(operations // len(budgets) // 100, keys)
            assert wrong == 0, f"{wrong} wrong answers with {mebibytes} MiB"
            assert store.within(), f"{store.memory} bytes of memory with a budget of {mebibytes} MiB"
        hits += store.hits
        evictions += store.evictions
        most = max(most, store.memory / (mebibytes * MIB))
    return {"operations": operations, "hits": hits, "evictions": evictions, "memory_of_budget": round(most, 3)}
