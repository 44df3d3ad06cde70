"""Keeps the last good policy set: checks what the folder holds, refuses what does not compile, remembers the rest."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from meshcache.extproc.control import MAX_MESSAGE_BYTES, Policies
from meshcache.extproc.last_good import LastGood, LastGoodFile
from meshcache.extproc.status import PolicyStatus, Refusal
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.policy.errors import PolicyError, PolicyErrors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from structlog.typing import FilteringBoundLogger

    from meshcache.observe.metrics import Metrics
    from meshcache.policy.compile import Surroundings
    from meshcache.policy.snapshot import Snapshot

MAX_SET_BYTES: Final = MAX_MESSAGE_BYTES // 2
"""The largest policy set that is taken: it must fit into one control message."""
LOGGED_ERRORS: Final = 20

# A mere check needs no particular secret: the secret decides which unit gets which arm, and nothing else.
_CHECK_SECRET: Final = b"check"


class Source(Protocol):
    """Where policy documents come from; `policy.sources.FolderSource` is one."""

    def read(self) -> Documents:
        """The documents now. Raises `PolicyErrors` or `OSError`."""
        ...

    def changes(self) -> AsyncIterator[Documents]:
        """Every later change of content."""
        ...


@dataclass(frozen=True, slots=True)
class FirstSet:
    """What a start takes: the folder's set, or else the last good one and why the folder's was refused."""

    documents: Documents
    generation: int
    snapshot: Snapshot
    refused: PolicyErrors | OSError | None = None


def first_set(
    source: Source, kept: LastGood | None, surroundings: Surroundings, secret: bytes = _CHECK_SECRET
) -> FirstSet:
    """The folder's set if it compiles, or else the last good one, `kept`. `secret` is that of its assignments.

    Raises `PolicyErrors` or `OSError` (of the folder) when there is neither.
    """
    try:
        documents = source.read()
        generation = 1
        if kept is not None:
            # The number goes on over restarts; the same text keeps its number.
            generation = kept.generation + (0 if kept.digest == documents.digest else 1)
        return FirstSet(documents, generation, _check(documents, generation, surroundings, secret))
    except (PolicyErrors, OSError) as error:
        if kept is None:
            raise
        try:
            documents = Documents(files=kept.files, digest=kept.digest)
            snapshot = _check(documents, kept.generation, surroundings, secret)
            return FirstSet(documents, kept.generation, snapshot, error)
        except PolicyErrors:
            # Kept by a release that allowed more. What the folder says is what the operator can mend.
            raise error from None


def _check(documents: Documents, generation: int, surroundings: Surroundings, secret: bytes) -> Snapshot:
    """Compile `documents`. Raises `PolicyErrors`, for a set that is too large to hand on as well."""
    size = sum(len(name) + len(text) for name, text in documents.files)
    if size > MAX_SET_BYTES:
        raise PolicyErrors(
            [PolicyError("", 0, 0, "", f"the policy files hold {size} characters; the limit is {MAX_SET_BYTES}")]
        )
    return compile_documents(documents, generation=generation, secret=secret, surroundings=surroundings)


class PolicyKeeper:
    """The policy set in force, and why the folder's own is not, if so."""

    def __init__(
        self,
        source: Source,
        source_name: str,
        last_good: LastGoodFile,
        surroundings: Callable[[], Surroundings],
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._source = source
        self._source_name = source_name
        self._last_good = last_good
        self._surroundings = surroundings
        self._metrics = metrics
        self._log = log
        self._snapshot: Snapshot | None = None
        self._policies: Policies | None = None
        self._secret = _CHECK_SECRET
        self._installed_at = 0.0
        self._from_last_good = False
        self._refusal: Refusal | None = None

    @property
    def policies(self) -> Policies:
        """The documents in force. Only after `load`."""
        if self._policies is None:
            raise RuntimeError("no policies have been loaded yet")
        return self._policies

    @property
    def snapshot(self) -> Snapshot:
        """The same, compiled. Only after `load`."""
        if self._snapshot is None:
            raise RuntimeError("no policies have been loaded yet")
        return self._snapshot

    @property
    def refusal(self) -> Refusal | None:
        """Why what the folder holds now is not in force; None when it is."""
        return self._refusal

    @property
    def status(self) -> PolicyStatus:
        """For the admin API."""
        snapshot = self.snapshot
        return PolicyStatus(
            generation=self.policies.generation,
            digest=self.policies.digest,
            installed_at=self._installed_at,
            source=self._source_name,
            from_last_good=self._from_last_good,
            policies=tuple(sorted(snapshot.policies)),
            routes=tuple(route.name for route in snapshot.routes),
            experiments=tuple(experiment.name for experiment in snapshot.experiments),
            lookup_budget=snapshot.lookup_budget(),
            refusal=self._refusal,
        )

    def load(self, secret: bytes) -> None:
        """The first set: the folder's, or else the last good one that was kept.

        `secret` is the installation's, by which units are assigned to arms: the filter's plan is made of what is
        compiled here, and has to assign them as the workers do.

        Raises `PolicyErrors` or `OSError` (of the folder) when there is neither.
        """
        first = first_set(self._source, self._last_good.load(), self._surroundings(), secret)
        self._secret = secret
        self._take(first.documents, first.generation, first.snapshot)
        if first.refused is not None:
            self._from_last_good = True
            self._refuse(first.refused)

    async def updates(self) -> AsyncIterator[Policies]:
        """Every new good set from now on; bad ones are reported, and the one before stays."""
        async for documents in self._source.changes():
            if documents.digest == self.policies.digest:
                self._back_to_good()
                continue
            generation = self.policies.generation + 1
            try:
                # In a thread: a large set must not keep the supervisor from its workers.
                snapshot = await asyncio.to_thread(self._compile, documents, generation)
            except PolicyErrors as errors:
                self._refuse(errors)
                continue
            self._take(documents, generation, snapshot)
            self._from_last_good = False
            self._refusal = None
            yield self.policies

    def _compile(self, documents: Documents, generation: int) -> Snapshot:
        return _check(documents, generation, self._surroundings(), self._secret)

    def _take(self, documents: Documents, generation: int, snapshot: Snapshot) -> None:
        self._policies = Policies(generation=generation, digest=documents.digest, files=documents.files)
        self._snapshot = snapshot
        self._installed_at = time.time()
        self._metrics.set("policy_generation", (), generation)
        try:
            self._last_good.save(LastGood(generation, documents.digest, documents.files))
        except OSError as error:
            self._log.warning("last good policies could not be kept", error=error)
        self._log.info(
            "policies in force", generation=generation, digest=documents.digest, policies=sorted(snapshot.policies)
        )

    def _refuse(self, error: PolicyErrors | OSError) -> None:
        lines = tuple(str(item) for item in error.errors) if isinstance(error, PolicyErrors) else (str(error),)
        self._refusal = Refusal(at=time.time(), errors=lines)
        self._metrics.inc("policy_refusals_total")
        self._log.error(
            "policies refused; the last good set stays",
            generation=self.policies.generation,
            errors=list(lines[:LOGGED_ERRORS]),
            more=max(0, len(lines) - LOGGED_ERRORS),
        )

    def _back_to_good(self) -> None:
        self._from_last_good = False
        if self._refusal is not None:
            self._refusal = None
            self._log.info("policies of the folder are good again", generation=self.policies.generation)
