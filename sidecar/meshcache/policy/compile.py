"""From the text of policy documents to a snapshot: parse, check, resolve references, compile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from meshcache.policy import compiled as c
from meshcache.policy import models as m
from meshcache.policy.check import check, nearest
from meshcache.policy.combining import Combiner
from meshcache.policy.compile_policy import VIA_ENVOY, compile_policy
from meshcache.policy.config_models import CacheConfig, IdentitySpec, NamedBy, RevisionSpec, SessionBy, TrustedBy
from meshcache.policy.documents import parse_documents
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.experiment_models import CacheExperiment
from meshcache.policy.experiments import ExperimentCompiler, written
from meshcache.policy.extends import Extension
from meshcache.policy.identity import IdentityRules, IdentitySource
from meshcache.policy.patterns import MAX_PROGRAMS, as_sent, check_pattern
from meshcache.policy.snapshot import Snapshot
from meshcache.policy.trust import TrustRule, parse_network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshcache.experiment.links import Links
    from meshcache.experiment.overlay import Overlay
    from meshcache.policy.documents import Document, Documents, Path
    from meshcache.policy.errors import PolicyError


def name_of(document: Document) -> str:
    """The name that a document gives itself; empty when it has none."""
    metadata = document.data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


M = TypeVar("M", CacheConfig, m.CachePolicy, m.CacheRoute, CacheExperiment)


@dataclass(frozen=True)
class Surroundings:
    """What the process knows of the pod it runs in: what `CacheConfig.spec.revision` and `refresh.via` refer to."""

    revision: str = ""
    """The revision given on the command line: used when the configuration names none or it cannot be found."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The pod's labels, as the downward API tells them."""
    environ: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    shows_all: tuple[str, ...] = ()
    """Address ranges whose clients see all of `cache-status` where the configuration names nobody."""
    refresh_clusters: frozenset[str] = frozenset()
    """The Envoy clusters that background refreshes may go to, from the command line."""


def compile_documents(
    documents: Documents,
    *,
    generation: int,
    secret: bytes,
    surroundings: Surroundings | None = None,
    refresh_clusters: frozenset[str] | None = None,
    overlays: Mapping[str, Overlay] | None = None,
    links: Links | None = None,
) -> Snapshot:
    """The snapshot that `documents` describe. Pure: the same arguments give an equivalent snapshot.

    `secret` keys the assignment of units to arms and must be the same in all workers and pods of an installation.
    Without `surroundings` (checking files away from the pod) a revision that would come from there is empty; with
    them a label or variable that is missing is an error. The same goes for `refresh.via`, whose clusters may be given
    as `refresh_clusters` where there are no surroundings. `overlays` is what has been decided about experiments,
    `links` what is remembered of callers for experiments with several kinds of units.

    Raises `PolicyErrors` with everything that is wrong in the set.
    """
    compiler = _Compiler.of(documents)
    if surroundings is not None:
        refresh_clusters = surroundings.refresh_clusters
    if refresh_clusters is not None:
        compiler.check_ways(refresh_clusters)
    snapshot = compiler.finish(documents.digest, generation, secret, surroundings, links)
    return snapshot.with_overlays(overlays) if overlays else snapshot


class PolicySet(NamedTuple):
    """A compiled set beside what it was compiled from, for who has to say what stands where."""

    snapshot: Snapshot
    manifests: tuple[tuple[Document, m.Manifest], ...]
    """In document order, policies with what they inherit."""


def compile_set(documents: Documents, secret: bytes = b"") -> PolicySet:
    """As `compile_documents` away from a pod. Raises `PolicyErrors`."""
    compiler = _Compiler.of(documents)
    return PolicySet(compiler.finish(documents.digest, 0, secret, None), tuple(compiler.manifests))


class _Compiler:
    def __init__(self, errors: list[PolicyError]) -> None:
        self._errors = errors
        self._all_read = not errors
        """Whether every file could be read: what is not found may else stand in one that could not."""
        self._named: dict[tuple[str, str], Document] = {}
        """The first document of each kind and name, sound or not."""
        self.manifests: list[tuple[Document, m.Manifest]] = []
        self._told: set[PolicyError] = set()

    @classmethod
    def of(cls, documents: Documents) -> Self:
        """One that has read `documents`, and checked each by itself, a policy together with what it inherits."""
        parsed, errors = parse_documents(documents)
        compiler = cls(errors)
        compiler._add(parsed)
        return compiler

    def _add(self, documents: Sequence[Document]) -> None:
        for document in documents:
            name = name_of(document)
            if name:
                self._register(str(document.data.get("kind")), name, document)
        policies = {name: document for (kind, name), document in self._named.items() if kind == "CachePolicy"}
        extension = Extension(policies, self._resolve, self._refuse)
        merged: list[Document] = []
        for document in documents:
            name = name_of(document)
            is_policy = self._named.get(("CachePolicy", name)) is document
            whole = extension.merge(document, name) if is_policy else document
            if whole is not None:
                merged.append(whole)
        # Bases first: who inherits a mistake makes none of his own, and it is told where it stands, once.
        for document in sorted(merged, key=lambda one: len(one.bases)):
            self._check(document)
        order = {id(document): place for place, document in enumerate(merged)}
        self.manifests.sort(key=lambda pair: order[id(pair[0])])

    def _check(self, document: Document) -> None:
        manifest, errors = check(document)
        if manifest is not None:
            self.manifests.append((document, manifest))
        for error in errors:
            if not document.bases:
                self._told.add(error)
            elif error in self._told:
                continue
            elif document.inherits_at(error):
                error = replace(error, message=f"{error.message}, in {name_of(document)}, which inherits it")
            self._errors.append(error)

    def _register(self, kind: str, name: str, document: Document) -> None:
        first = self._named.setdefault((kind, name), document)
        if first is not document:
            where = first.values[("metadata", "name")]
            message = f"a {kind} named {name} is already defined at {first.file}:{where.line}"
            self._refuse(document, ("metadata", "name"), message)

    def _refuse(self, document: Document, path: Path, message: str, hint: str = "") -> None:
        self._errors.append(document.error(path, message, hint))

    def _of(self, kind: type[M]) -> list[tuple[Document, M]]:
        return [(document, manifest) for document, manifest in self.manifests if isinstance(manifest, kind)]

    def check_ways(self, clusters: frozenset[str]) -> None:
        """Refuse policies whose refreshes would go elsewhere than to `clusters`."""
        for document, manifest in self._of(m.CachePolicy):
            via = manifest.spec.refresh.via
            if via != VIA_ENVOY and via not in clusters:
                message = f"{via} is none of the clusters that refreshes may go to"
                hint = nearest(via, clusters) or f"start meshcache with --refresh-cluster {via}, or write {VIA_ENVOY}"
                self._refuse(document, ("spec", "refresh", "via"), message, hint)

    def finish(
        self, digest: str, generation: int, secret: bytes, surroundings: Surroundings | None, links: Links | None = None
    ) -> Snapshot:
        """Resolve what refers to something else, and build the snapshot."""
        config = self._config(surroundings)
        if surroundings is not None:
            config = replace(config, refresh_clusters=surroundings.refresh_clusters)
        for document, manifest in self._of(m.CachePolicy):
            self._borders(document, manifest, config.identity)
        policies = {manifest.metadata.name: compile_policy(manifest) for _, manifest in self._of(m.CachePolicy)}
        self._bound_patterns()
        routes = [self._route(document, manifest, policies) for document, manifest in self._of(m.CacheRoute)]
        specs = {manifest.metadata.name: written(manifest.spec) for _, manifest in self._of(m.CachePolicy)}
        # What the CacheConfig would say is not known where a file could not be read.
        knows_subject = config.identity.subject is not None or not self._all_read
        compiler = ExperimentCompiler(policies, specs, self._resolve, self._refuse, knows_subject=knows_subject)
        experiments = compiler.compile(self._of(CacheExperiment))
        # What is wrong already would be told once more.
        combinations = {} if self._errors else self._combiner(policies).combine_all(routes, experiments)
        if self._errors:
            raise PolicyErrors(self._errors)
        return Snapshot(
            generation=generation,
            digest=digest,
            config=config,
            policies=policies,
            routes=tuple(routes),
            experiments=tuple(experiment for _, experiment in experiments),
            secret=secret,
            combinations=combinations,
            links=links,
        )

    def _combiner(self, policies: Mapping[str, c.Policy]) -> Combiner:
        documents = {manifest.metadata.name: (document, manifest) for document, manifest in self._of(m.CachePolicy)}
        return Combiner(policies, documents, self._refuse)

    def _resolve(self, document: Document, path: Path, kind: str, name: str) -> bool:
        """Whether a reference leads somewhere; a broken document counts, its own errors are reported already."""
        if (kind, name) in self._named:
            return True
        if self._all_read:
            known = [other for its_kind, other in self._named if its_kind == kind]
            self._refuse(document, (*path, "name"), f"there is no {kind} named {name}", nearest(name, known))
        return False

    def _config(self, surroundings: Surroundings | None) -> c.Config:
        found = self._of(CacheConfig)
        for document, _ in found[1:]:
            first = found[0][0]
            self._refuse(document, ("kind",), f"there is a CacheConfig already, in {first.file}", "one is allowed")
        if not found:
            fixed = surroundings.revision if surroundings is not None else ""
            return c.Config(
                trust=c.Trust(cache_status=_shows_all(None, surroundings)), revision=c.RevisionSource(value=fixed)
            )
        document, manifest = found[0]
        spec = manifest.spec
        return c.Config(
            name=manifest.metadata.name,
            warm_url=spec.stores.warm.url if spec.stores.warm is not None else None,
            cold_url=spec.stores.cold.url if spec.stores.cold is not None else None,
            cold_max_bytes=spec.stores.cold.max_bytes if spec.stores.cold is not None else None,
            hot_bytes=spec.budgets.hot,
            filter_bytes=spec.budgets.filter,
            trust=c.Trust(
                canary=_trust(spec.trust.canary_header),
                score=_trust(spec.trust.score_header),
                cache_status=_shows_all(spec.trust.cache_status, surroundings),
            ),
            cache_status=spec.telemetry.cache_status,
            identity=_identity(spec.identity),
            revision=self._revision(document, spec.revision, surroundings),
            metrics_listen=spec.admin.metrics_listen,
            webhook=None
            if spec.notify.webhook is None
            else c.Webhook(spec.notify.webhook.url, spec.notify.webhook.timeout),
        )

    def _revision(
        self, document: Document, spec: RevisionSpec | None, surroundings: Surroundings | None
    ) -> c.RevisionSource:
        given = surroundings.revision if surroundings is not None else ""
        if spec is None or spec.name is None:
            return c.RevisionSource(kind="fixed" if spec is None else "envoyCluster", value=given)
        if surroundings is None:
            return c.RevisionSource()
        source = surroundings.labels if spec.from_ == "podLabel" else surroundings.environ
        value = source.get(spec.name) or given
        if not value:
            # Going on without it would let two releases of the application share answers.
            what = "pod label" if spec.from_ == "podLabel" else "environment variable"
            hint = "mount the pod's labels by the downward API" if spec.from_ == "podLabel" else ""
            self._refuse(document, ("spec", "revision", "name"), f"the {what} {spec.name} is not set", hint)
        return c.RevisionSource(value=value)

    def _borders(self, document: Document, manifest: m.CachePolicy, identity: IdentityRules) -> None:
        """Refuse a border of which the configuration does not say where it runs."""
        known: Mapping[str, IdentitySource | None] = {
            "tenant": identity.tenant,
            "subject": identity.subject,
            "session": identity.session,
        }
        for index, part in enumerate(manifest.spec.key.partition):
            if part.word in known and known[part.word] is None and self._all_read:
                message = f"the CacheConfig does not say in spec.identity.{part.word} who that is"
                hint = f"for example identity: {{{part.word}: {{jwtClaim: {_CLAIMS[part.word]}}}}}"
                self._refuse(document, ("spec", "key", "partition", index), message, hint)
        subject = identity.subject
        if manifest.spec.freshness.ignore and subject is not None and subject.kind != "jwtClaim":
            message = "needs spec.identity.subject of the CacheConfig to be a jwtClaim"
            hint = "a certificate names the workload that calls, not the person on whose behalf"
            self._refuse(document, ("spec", "freshness", "ignore"), message, hint)

    def _bound_patterns(self) -> None:
        """Refuse the expression with which those of all routes become too large."""
        total = 0
        for document, manifest in self._of(m.CacheRoute):
            for index, match in enumerate(manifest.spec.match):
                given = [] if match.path is None else [match.path.regex]
                given += [header.regex for header in match.headers]
                given += [parameter.regex for parameter in match.query]
                total += sum(check_pattern(text) for text in given if text is not None)
                if total > MAX_PROGRAMS:
                    message = "with this match the regular expressions of all routes are too large together"
                    hint = "name paths by prefix where that will do, and repeat without a count: * or +"
                    self._refuse(document, ("spec", "match", index), message, hint)
                    return

    def _route(self, document: Document, manifest: m.CacheRoute, policies: Mapping[str, c.Policy]) -> c.Route:
        ref = manifest.spec.policy_ref
        policy = None
        if ref is not None and self._resolve(document, ("spec", "policyRef"), "CachePolicy", ref.name):
            policy = policies.get(ref.name)
        return c.Route(manifest.metadata.name, tuple(_match(match) for match in manifest.spec.match), policy)


_CLAIMS = {"tenant": "org", "subject": "sub", "session": "sid"}


def _identity(spec: IdentitySpec) -> IdentityRules:
    return IdentityRules(*map(_named_by, (spec.subject, spec.tenant, spec.session)))


def _named_by(spec: NamedBy | SessionBy | None) -> IdentitySource | None:
    if spec is None:
        return None
    if spec.jwt_claim is not None:
        return IdentitySource("jwtClaim", spec.jwt_claim)
    if isinstance(spec, SessionBy):
        return IdentitySource("cookie", spec.cookie or "")
    return IdentitySource("mtlsPeer", spec.mtls_peer or "")


def _trust(spec: TrustedBy | None) -> TrustRule:
    sources = spec.from_ if spec is not None else []
    words = {source.word for source in sources}
    networks = [parse_network(text) for source in sources for text in source.addresses]
    return TrustRule(anyone="any" in words, mesh="mesh" in words, networks=networks)


def _shows_all(spec: TrustedBy | None, surroundings: Surroundings | None) -> TrustRule:
    if spec is None and surroundings is not None:
        return TrustRule(networks=map(parse_network, surroundings.shows_all))
    return _trust(spec)


def _condition(spec: m.HeaderMatch | m.QueryMatch) -> c.Condition:
    if spec.regex is not None:
        return c.Condition(as_sent(spec.name), spec.regex, regex=True)
    return c.Condition(as_sent(spec.name), as_sent(spec.exact or ""))


def _match(spec: m.MatchModel) -> c.Match:
    path = spec.path
    return c.Match(
        hosts=tuple(spec.hosts),
        exact=path.exact if path is not None else None,
        # `/v1/images/` and `/v1/images` are the same prefix, as in the Gateway API.
        prefix=path.prefix.rstrip("/") if path is not None and path.prefix is not None else "",
        regex=path.regex if path is not None else None,
        methods=frozenset(spec.methods),
        headers=tuple(map(_condition, spec.headers)),
        query=tuple(map(_condition, spec.query)),
    )
