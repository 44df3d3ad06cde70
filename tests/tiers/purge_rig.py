"""A pod's log of purges with its board, as the supervisor keeps them."""

from __future__ import annotations

from pathlib import Path

from meshcache.engine.purge_state import Header, Step, generation
from meshcache.engine.purges import PurgeKind, Rule, parse_value
from meshcache.tiers.board import Board
from meshcache.tiers.purge_log import LogWriter


class Pod:
    """The one that writes. `purge` is a rule in the log; `publish` tells the board."""

    def __init__(self, folder: Path, clock=lambda: 1000.0, incarnation: int = 7) -> None:
        self.path = folder / "purges.log"
        self.board = Board(folder / "board", slots=1 << 16, lease_buckets=16)
        self.log = LogWriter(self.path)
        self.incarnation = incarnation
        self.number = 0
        self.clock = clock
        self.log.replace(Header(incarnation), [])
        self.publish()

    def purge(self, kind: PurgeKind, value: str = "", *, soft: bool = False, publish: bool = True) -> Rule:
        self.number += 1
        rule = Rule(kind, parse_value(kind, value), soft, self.clock(), f"u{self.number}")
        self.log.append([Step(self.number, rule, self.clock())])
        if publish:
            self.publish()
        return rule

    def publish(self) -> None:
        self.board.purges = generation(self.incarnation, self.number)

    def close(self) -> None:
        self.log.close()
        self.board.close()
