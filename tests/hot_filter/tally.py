"""What the filters have answered, beside what they have told of it: everything once, but for what a reload has cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshcache.wasm.numbers import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.policy.selection import Selection
    from proxy_wasm import Reply

Place = tuple[object, ...]


@dataclass
class Tally:
    """Requests by what is counted of them."""

    seen: Counter[Place] = field(default_factory=Counter)
    untold: dict[int, Counter[Place]] = field(default_factory=dict)
    """What each living worker has seen."""
    lost: Counter[Place] = field(default_factory=Counter)
    """What workers that are gone may not have told."""

    def answered(self, worker: int, reply: Reply, selection: Selection) -> None:
        """The filter has answered a request."""
        policy = "" if selection.policy is None else selection.policy.name
        label = (selection.route, selection.arm, policy)
        places: list[Place] = [("hit", *label)]
        if reply.status == 304:
            places.append(("not modified", *label))
        places += [("exposed", one.experiment, one.arm, one.unit) for one in selection.exposures]
        self._add(worker, places)

    def passed(self, worker: int, route: str) -> None:
        """The filter has sent a request past the sidecar."""
        self._add(worker, [("passed", route)])

    def reloaded(self, worker: int) -> None:
        """A worker has a new VM, and nobody knows what the old one has not told."""
        self.lost += self.untold.pop(worker, Counter())

    def check(self, batches: Sequence[bytes]) -> None:
        """The batches that have come say all of it, and nothing twice but what is sent again as it was."""
        different = {body: decode(body) for body in batches}
        found = list(different.values())
        assert len({(batch.worker, batch.sequence) for batch in found}) == len(found)
        told: Counter[Place] = Counter()
        for batch in found:
            for plain in batch.plain:
                label = plain.tag[:3]
                told["hit", *label] += plain.fresh + plain.stale
                told["not modified", *label] += plain.not_modified
                told["passed", plain.tag.route] += plain.passed
            for arm in batch.counted:
                for row in arm.rows:
                    told["exposed", arm.tag.counted.experiment, arm.arm, row.unit] += row.requests
        told = +told
        assert not told - self.seen, "more than there was"
        assert not (self.seen - told) - self.lost, "less than there was"

    def _add(self, worker: int, places: Iterable[Place]) -> None:
        counts = Counter(places)
        self.seen += counts
        self.untold.setdefault(worker, Counter()).update(counts)
