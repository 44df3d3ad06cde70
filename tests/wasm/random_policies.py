"""Policy sets and requests at random, for comparing the filter with the engine."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from meshcache.experiment.overlay import Adoption, Overlay, Phase
from meshcache.message import Headers, Peer, Request
from meshcache.policy import compiled as c
from meshcache.policy.identity import IdentityRules, IdentitySource
from meshcache.policy.selection import namespace
from meshcache.policy.snapshot import Snapshot
from meshcache.policy.trust import TrustRule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

HOSTS: Final = ("example.com", "*.example.com", "*.a.example.com", "api.example.com", "*.com", "x")
SEGMENTS: Final = ("v1", "images", "a", "b.c", "x%20y", "long-segment-of-a-path")
HEADERS: Final = ("accept", "accept-encoding", "accept-language", "x-a", "x-b", "origin")
PARAMETERS: Final = ("page", "utm_source", "utm_medium", "q", "lang")
COOKIES: Final = ("sid", "lang", "s")
EXPRESSIONS: Final = ("/v1/.*", "/[a-z]+/images", ".*", "/b[0-9]+")
NETWORKS: Final = ("10.0.0.0/8", "127.0.0.1/32", "2001:db8::/33", "::1/128", "192.168.4.0/23")
ADDRESSES: Final = ("10.1.2.3", "127.0.0.1", "11.0.0.1", "2001:db8::1", "::1", "::ffff:10.0.0.1", "192.168.5.7")
NAMES: Final = (*PARAMETERS, "u", "Pages", "utm_")
# They look like others, or can be read in two ways.
ODD_NAMES: Final = (
    *("q[]", "q[0]", "Page", "PAGE", "utm.medium", "utm_Medium", "Utm_x", "%71", "q+", "page.no", "page_no", "p[", "["),
)
VALUES: Final = ("=1", "=2", "", "=", "=caf\xc3\xa9")
COOKIE_NAMES: Final = (*COOKIES, "session", "Side")
ODD_COOKIE_VALUES: Final = ("=x y", '="', "=x, lang=1", '="a b"', "=1 sid=2", "=\\")
ODD_COOKIE_NAMES: Final = ("Sid", "SID", "s[]", "s.", "la%6eg", "sid ", "lang[x]", "s.id", "\xe9", "[")
COOKIE_VALUES: Final = ("=1", "=", "=a=b", "=\xe9", "")
RETARGETING_FIELDS: Final = (
    *(("x-forwarded-port", "443"), ("x-forwarded-host", "cdn.example.com"), ("x-original-url", ""), ("x-host", "\xe9")),
)
ODD_HOSTS: Final = (
    *("", "[::1]:80", "[::1", "[", "[a.:1]", "\xc9xample.com", ":80", "..", "a" * 300, "[::1].", ".", "[::1]x"),
)
ODD_PATHS: Final = (
    *("", "*", "/..", "/a/%2e%2e/b", "/a;x/y", "/%2f", "/%zz", "/\xc0\xae", "/.hidden", "/a\\b", "/\xff", "//"),
)
SECRET: Final = b"of the assignment"

T = TypeVar("T")


class Maker:
    """Makes policies and requests from one source of chance."""

    def __init__(self, random: Random, *, tame: bool = False) -> None:
        """`tame`: only policies that the filter can do by itself, and requests that are plain."""
        self._random = random
        self._tame = tame

    # -- policies ----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A policy set with what has been decided on top."""
        policies = [self._policy(number) for number in range(self._random.randint(1, 4))]
        routes = tuple(self._route(number, policies) for number in range(self._random.randint(1, 8)))
        experiments = tuple(
            self._experiment(f"{route.name}-{number}", route.name, policies)
            for route in routes
            if self._chance(0.5)
            for number in range(1 if self._tame or self._chance(0.9) else 2)
        )
        by_route: dict[str, list[c.Experiment]] = {}
        for experiment in experiments:
            by_route.setdefault(experiment.route, []).append(experiment)
        combinations = {
            route: {
                places: self._random.choice(policies)
                for places in product(*(range(len(experiment.arms)) for experiment in on_route))
            }
            for route, on_route in by_route.items()
            if len(on_route) > 1
        }
        snapshot = Snapshot(
            generation=1,
            digest="",
            config=self._config(),
            policies={policy.name: policy for policy in policies},
            routes=routes,
            experiments=experiments,
            secret=SECRET,
            combinations=combinations,
        )
        overlays = {one.name: self._overlay(one) for one in experiments if self._chance(0.6)}
        adoptions = [
            Adoption(route.name, route.policy.digest, namespace(route.name, "gone", "winner"))
            for route in routes
            if route.policy is not None and self._chance(0.2)
        ]
        return snapshot.with_overlays(overlays, adoptions)

    def _policy(self, number: int) -> c.Policy:
        limits = c.TierLimits(60.0, 1 << self._random.randint(10, 22), 0.01)
        hot = limits if self._tame or self._chance(0.95) else replace(limits, ttl=0.0)
        ignore = frozenset() if self._tame or self._chance(0.95) else frozenset({"private"})
        return c.Policy(
            name=f"p{number}",
            eviction="lru",
            freshness=c.Freshness(ignore=ignore),
            tiers=c.Tiers(hot, limits, limits),
            placement=c.Placement(),
            key=self._key(),
            cost=self._random.choice((0.0, 0.002, 1.5)),
            digest=f"{number:032}",
        )

    def _key(self) -> c.KeySpec:
        methods = frozenset({"GET", "HEAD"})
        if not self._tame and self._chance(0.1):
            methods = frozenset(self._some(("GET", "HEAD")) or ("GET",))
        spec = c.KeySpec(
            methods=methods,
            host=self._chance(0.8),
            query_include=self._random.choice(
                (("*",), ("*",), ("page", "q"), ("utm_*", "page"), ())
                + (() if self._tame else (("Q", "page.no"), ("p[*", "u%*", "q[0]")))
            ),
            query_exclude=self._random.choice(((), (), ("utm_*",), ("page", "la*"), ("\u0436*", "q"))),
            query_sort=self._chance(0.4),
            headers=self._some(HEADERS),
            cookies=self._some(COOKIES),
            strip=frozenset(self._some(("x-forwarded-proto", "x-forwarded-host", "x-c"))),
            partition_headers=self._some(("x-tenant", "accept")),
            partition_tenant=not self._tame and self._chance(0.05),
        )
        return replace(spec, fingerprint=blake2b(repr(spec).encode(), digest_size=8).digest())

    def _route(self, number: int, policies: Sequence[c.Policy]) -> c.Route:
        matches = tuple(self._match() for _ in range(self._random.randint(1, 3)))
        return c.Route(f"r{number}", matches, self._random.choice((None, *policies)))

    def _match(self) -> c.Match:
        exact, prefix, regex = None, "", None
        kind = self._random.random()
        if kind < 0.3:
            exact = self._path()
        elif kind < 0.8:
            prefix = self._path().rstrip("/")
        elif kind < 0.85 and not self._tame:
            regex = self._random.choice(EXPRESSIONS)
        return c.Match(
            hosts=self._some(HOSTS) if self._chance(0.5) else (),
            exact=exact,
            prefix=prefix,
            regex=regex,
            methods=frozenset(self._some(("GET", "HEAD", "POST"))) if self._chance(0.2) else frozenset(),
            headers=self._conditions(("x-a", "x-b", "accept")),
            query=self._conditions(PARAMETERS),
        )

    def _conditions(self, names: Sequence[str]) -> tuple[c.Condition, ...]:
        if self._chance(0.85):
            return ()
        return tuple(
            c.Condition(name, "[0-9]*", regex=True)
            if not self._tame and self._chance(0.1)
            else c.Condition(name, self._random.choice(("1", "2", "", "caf\xc3\xa9")))
            for name in self._some(names)[:2]
        )

    def _experiment(self, name: str, route: str, policies: Sequence[c.Policy]) -> c.Experiment:
        kind = self._random.random()
        units: tuple[c.UnitSource, ...]
        if kind < 0.5:
            units = (c.UnitSource("header", "x-user-id"),)
        elif kind < 0.8:
            units = (c.UnitSource("cookie", self._random.choice(COOKIES)),)
        elif kind < 0.9 or self._tame:
            units = (c.UnitSource("cacheKey"),)
        elif kind < 0.95:
            units = (c.UnitSource("header", "x-user-id"), c.UnitSource("cookie", "sid"))
        else:
            units = (c.UnitSource("subject"),)
        count = self._random.randint(2, 5)
        same = self._random.choice(policies)
        arms = tuple(
            c.Arm(
                f"arm{place}",
                same if units[0].kind == "cacheKey" else self._random.choice(policies),
                self._random.choice((0, 1, 2, 50, 1_000_000)) or (place == 0),
                ((("x-canary", f"v{place}"), ("x-force", str(place)))[: self._random.randint(0, 2)]),
            )
            for place in range(count)
        )
        compare = None
        if self._chance(0.5):
            candidate = self._random.randrange(1, count)
            compare = c.Compare(candidate, self._random.choice([one for one in range(count) if one != candidate]))
        return c.Experiment(name, route, units, arms, uid=f"uid-{name}", spec_hash=f"hash-{name}", compare=compare)

    def _overlay(self, experiment: c.Experiment) -> Overlay:
        phase = self._random.choice((*Phase, *(Phase.WARMING, Phase.RUNNING, Phase.PAUSED) * 4))
        weights = [self._random.choice((0, 1, 7, 500_000)) for _ in experiment.arms]
        weights[0] = weights[0] or 1
        return Overlay(
            experiment=experiment.name,
            spec_hash=experiment.spec_hash,
            phase=phase,
            weights=tuple(weights),
            epoch=self._random.randint(0, 1 << 40),
            counting=self._chance(0.6),
            winner=self._random.choice(experiment.arms).name if phase is Phase.PROMOTED else "",
        )

    def _config(self) -> c.Config:
        kind: Literal["fixed", "envoyCluster"] = "fixed" if self._chance(0.5) else "envoyCluster"
        identity = IdentityRules()
        if not self._tame and self._chance(0.3):
            identity = IdentityRules(subject=IdentitySource("jwtClaim", "sub"))
        return c.Config(
            trust=c.Trust(canary=self._trust(), cache_status=self._trust()),
            cache_status=self._random.choice(("off", "minimal", "standard")),
            revision=c.RevisionSource(
                "envoyCluster" if kind == "envoyCluster" else "fixed", self._text(("", "r1", "caf\xe9"))
            ),
            identity=identity,
        )

    def _trust(self) -> TrustRule:
        networks = map(ipaddress.ip_network, self._some(NETWORKS) if self._chance(0.6) else ())
        return TrustRule(anyone=self._chance(0.3), mesh=self._chance(0.2), networks=networks)

    # -- requests ----------------------------------------------------------------------------------------------

    def request(self) -> Request:
        """A request that may fit any of those policies."""
        fields = [field for field in self._fields() for _ in range(self._random.choice((1, 1, 1, 1, 2)))]
        if not self._tame and self._chance(0.1):
            fields.append(self._odd_field())
        self._random.shuffle(fields)
        scheme = self._text(("http", "https"))
        if self._chance(0.7):
            fields.append(("x-forwarded-proto", scheme if self._chance(0.8) else "https"))
        for name, value in RETARGETING_FIELDS:
            if self._chance(0.1):
                fields += [(name, value)] * (1 if self._tame or self._chance(0.9) else 2)
        method = self._random.choice(("GET", "GET", "GET", "HEAD"))
        if not self._tame and self._chance(0.02):
            method = self._text(("POST", "OPTIONS", "get", ""))
        return Request(
            method,
            self._authority(),
            self._target(),
            Headers(fields),
            scheme,
            peer=Peer(self._random.choice(ADDRESSES), self._chance(0.3)),
            cluster=self._text(("", "v7", "inbound|80||")),
            complete=True,
        )

    def _fields(self) -> list[tuple[str, str]]:
        choices = [
            ("accept", ("text/html, */*;q=0.1", "*/*;q=0.10,Text/HTML", "1", "", 'a/b;x="y,z"', "a/b;q=2")),
            ("accept-encoding", ("gzip, br", "br,gzip;q=1.000", "x-gzip", "identity;q=0", "gzip;q=0.5, gzip")),
            ("accept-language", ("de, en;q=0.5", "en;q=0.50 , de", "*")),
            ("x-a", ("1", "2", "", "caf\xc3\xa9", " a , b,,")),
            ("x-b", ("1", "x,y", "\xff")),
            ("origin", ("https://o.example",)),
            ("x-user-id", ("u1", "u2", f"u{self._random.random()}", "\xe9\xff", "")),
            ("x-canary", ("v0", "v1", "v2", "none")),
            ("x-force", ("0", "1", "3")),
            ("x-tenant", ("t1", "t2", "")),
            ("x-c", ("c",)),
            ("cookie", (self._cookies(),)),
            ("user-agent", ("Mozilla/5.0",)),
            ("x-request-id", ("0af3",)),
            ("te", ("trailers",)),
            ("if-none-match", ('"e"',)),
        ]
        often = ("x-user-id", "cookie")
        return [(name, self._text(values)) for name, values in choices if self._chance(0.8 if name in often else 0.35)]

    def _cookies(self) -> str:
        if self._chance(0.1):
            return self._text(("", ";", "=", "sid", ";;sid=1", "\tsid=1;sid=2", "lang;sid"))
        names, values = COOKIE_NAMES, COOKIE_VALUES
        if not self._tame and self._chance(0.2):
            names, values = (*names, *ODD_COOKIE_NAMES), (*values, *ODD_COOKIE_VALUES)
        pairs = [self._text(names) + self._text(values) for _ in range(self._random.randint(1, 4))]
        return self._text(("; ", ";", ";  ")).join(pairs)

    def _odd_field(self) -> tuple[str, str]:
        return self._random.choice(
            (
                ("authorization", "Bearer x"),
                ("range", "bytes=0-1"),
                ("cache-control", "no-cache"),
                ("pragma", "no-cache"),
                ("upgrade", "websocket"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("content-type", "\xa0Application/gRPC+proto"),
                ("content-type", "text/plain"),
                ("x-forwarded-host", "evil"),
                ("x-original-url", ""),
                ("forwarded", "for=1.2.3.4"),
                ("x-http-method-override", "DELETE"),
                ("if-match", '"e"'),
                ("if-modified-since", "yesterday"),
                ("x-cache-status", "key"),
            )
        )

    def _authority(self) -> str:
        host = self._random.choice(HOSTS).replace("*", self._text(("www", "a", "b.a", "a.a")))
        if self._chance(0.1):
            host = host.upper()
        if self._chance(0.1):
            host += "."
        if self._chance(0.2):
            host += self._text((":80", ":443", ":8080", ":"))
        if not self._tame and self._chance(0.1):
            host = self._text(ODD_HOSTS)
        return host

    def _target(self) -> str:
        path = self._path()
        if self._chance(0.5):
            path += self._random.choice(("/", "/more", "/7", "x", "/images"))
        if not self._tame and self._chance(0.1):
            path = self._text(ODD_PATHS) + self._text(("", "/x"))
        return path + self._query()

    def _query(self) -> str:
        if self._chance(0.4):
            return ""
        if not self._tame and self._chance(0.05):
            return self._text(("?%70age=1&page=1", "?a+b=1&q=2", "??", "?page?=1#"))
        if self._chance(0.1):
            return self._text(("?", "?&", "?=", "?;a=1&page=2"))
        names = (*NAMES, *ODD_NAMES) if not self._tame and self._chance(0.3) else NAMES
        pairs = [self._text(names) + self._text(VALUES) for _ in range(self._random.randint(1, 6))]
        if not self._tame and self._chance(0.02):
            pairs *= 200
        return "?" + "&".join(pairs)

    def _path(self) -> str:
        return "/" + "/".join(self._random.choice(SEGMENTS) for _ in range(self._random.randint(0, 3)))

    # -- chance ------------------------------------------------------------------------------------------------

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _text(self, of: Sequence[str]) -> str:
        return self._random.choice(of)

    def _some(self, of: Sequence[T]) -> tuple[T, ...]:
        return tuple(one for one in of if self._chance(0.3))
