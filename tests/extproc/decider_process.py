"""A process that decides about one experiment by a real store, and that stops itself where it is told.

`python decider_process.py URL FOLDER NAME`: once the file `harm-<name>` is in FOLDER, it sees a breach; once
`stop-<name>` is, it sees one too, and stops itself (SIGSTOP) between looking and writing. What it has seen written it
appends to `<name>.log`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

from experiment_plans import HARM, HARMLESS, SPEC, experiment, findings
from meshcache.experiment.findings import Findings
from meshcache.experiment.state import Record
from meshcache.extproc.decider import Decider
from meshcache.policy.compiled import Experiment
from meshcache.process import die_with_parent
from meshcache.tiers.decision_redis import DecisionRedis
from meshcache.tiers.decision_store import StoreError
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.signing import Keyring

OF = experiment(SPEC.replace("warmup: 5s", "warmup: 0s"))


class Finder:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    async def findings(self, experiment: Experiment, record: Record) -> Findings | None:  # noqa: ARG002
        stop = self.folder / f"stop-{self.name}"
        stops = stop.exists()
        harm = stops or (self.folder / f"harm-{self.name}").exists()
        if stops:
            stop.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return findings(record, latency=HARM if harm else HARMLESS)


async def main(url: str, folder: Path, name: str) -> None:
    client = RedisTier(url)
    log = folder / f"{name}.log"

    def note(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text}\n")

    decider = Decider(
        DecisionRedis(client.send, client.where, lambda: Keyring([b"k" * 32], b"a" * 32)),
        Finder(folder, name),
        decided=lambda record, decisions: note(f"wrote {record.version} {[one.what.value for one in decisions]}"),
        failed=lambda _name, error: note(f"failed {error!r}"),
        settling=0.0,
    )
    snapshot = SimpleNamespace(experiments=(OF,), adoption=lambda *_: None)
    led = None
    while True:
        try:
            await decider.look(snapshot)
        except StoreError as error:
            note(f"away {error}")
        if decider.leads is not led:
            led = decider.leads
            note("leads" if led else "follows")
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
