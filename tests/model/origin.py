"""An origin whose every answer the model knows, and can recognise in whatever the cache gives out later."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from model.around import START, Time
from model.flights import Flight, Reply
from model.rules import Asked, Kept, Policy, Said
from model.wording import date, response_directives

if TYPE_CHECKING:
    from meshcache.message import Request

PATHS = ("/a", "/b")
SECRET_FIELD = "x-secret"
Validator = Literal["none", "strong", "weak", "date", "both"]


@dataclass(frozen=True)
class Resource:
    """What the origin says at one path from now on."""

    version: int = 0
    status: int = 200
    said: Said = field(default_factory=lambda: Said(max_age=10))
    style: str = "plain"
    expires_in: float | None = None
    """Seconds after its `date`; minus infinity: an `expires` that is no date."""
    skew: int | None = 0
    """Seconds by which its clock is ahead; None: no `date`."""
    age: int | None = None
    vary: tuple[str, ...] = ()
    validator: Validator = "strong"
    cookie: bool = False
    sparse: bool = False
    """A 304 has nothing but a validator."""
    names: str | None = None
    """What an unsafe method's answer names, as `location /b`."""
    local: bool = False
    """It is Envoy that answers, not the origin."""


@dataclass
class State:
    """One answer of the origin: a response, or one that brings a stored response up to date."""

    number: int
    order: int
    """When the origin was asked, among all events."""
    path: str
    asked: Asked
    kept: Kept
    vary: tuple[str, ...]
    fields: dict[str, str]
    began: float
    """When the request began that was answered by it."""
    serial: int | None = None
    """The body that came with it."""
    policy: Policy = field(default_factory=Policy)
    """Under which it was asked for."""


@dataclass
class Made:
    """A body that the origin has made."""

    serial: int
    body: bytes
    first: State
    whole: bool = False
    """The cache has seen all of it."""
    states: list[State] = field(default_factory=list)


class Origin:
    """Answers by what `resources` say, with validators that work."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.resources = {path: Resource() for path in PATHS}
        self.made: dict[int, Made] = {}
        self.states: dict[int, State] = {}
        self.saids: dict[str | None, Said] = {None: Said()}
        """What each `cache-control` means."""

    def tags(self, path: str) -> list[str]:
        """The entity tags that there have been, the newest first, and one that there never was."""
        found = {
            state.fields["etag"]: None
            for state in self.states.values()
            if state.path == path and "etag" in state.fields
        }
        return [*reversed(found), '"none"']

    def change(self, path: str, **changes: object) -> None:
        self.resources[path] = replace(self.resources[path], **changes)  # type: ignore[arg-type]

    def __call__(self, flight: Flight, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        resource = self.resources[path]
        if request.method not in ("GET", "HEAD"):
            return self._unsafe(path, resource)
        asked = flight.facts or Asked(request.method, path, dict(request.headers.fields))
        headers = self._fields(path, resource, asked)
        unmodified = resource.status == 200 and not resource.local and _unmodified(request, headers)
        if unmodified and resource.sparse:
            headers = {name: value for name, value in headers.items() if name in ("etag", "last-modified", "date")}
        state = self._state(flight, path, asked, resource, headers)
        if unmodified:
            return Reply(304, tuple(headers.items()), b"", state)
        serial = len(self.made) + 1
        body = b"" if request.method == "HEAD" or resource.status in (204, 304) else b"%06d|%s" % (serial, b"x" * 20)
        if request.method == "GET":
            state.serial = serial
            headers["x-serial"] = str(serial)
            self.made[serial] = Made(serial, body, state, states=[state])
        if resource.local:
            return Reply(resource.status, tuple(headers.items()), body, state, from_origin=False)
        return Reply(resource.status, tuple(headers.items()), body, state)

    def _unsafe(self, path: str, resource: Resource) -> Reply:
        if resource.status < 400 and not resource.local:
            self.change(path, version=resource.version + 1)
        fields: tuple[tuple[str, str], ...] = ()
        if resource.names is not None:
            name, target = resource.names.split(" ")
            fields = ((name, target),)
        return Reply(resource.status, fields, b"done", from_origin=not resource.local)

    def _fields(self, path: str, resource: Resource, asked: Asked) -> dict[str, str]:
        now = self._time.now
        chosen = [asked.fields.get(name, "-") for name in resource.vary if name != "*"]
        # A tag that was weak does not become a strong one.
        tag = ".".join([resource.validator[0], str(resource.version), *chosen])
        date_given = None if resource.skew is None else now + resource.skew
        directives = response_directives(resource.said, resource.style)
        self.saids[directives] = resource.said
        expires = None
        if resource.expires_in is not None:
            expires = (now if date_given is None else date_given) + resource.expires_in
        modified = date(START - 1000 + resource.version)
        fields = {
            "cache-control": directives,
            "date": None if date_given is None else date(date_given),
            "expires": None if expires is None else date(expires),
            "age": None if resource.age is None else str(resource.age),
            "cache-tag": f"t{path[1:]}, both",
            "vary": ", ".join(resource.vary) or None,
            "etag": {"strong": f'"{tag}"', "both": f'"{tag}"', "weak": f'W/"{tag}"'}.get(resource.validator),
            "last-modified": modified if resource.validator in ("date", "both") else None,
            "set-cookie": f"of={tag}" if resource.cookie else None,
            SECRET_FIELD: "secret" if resource.said.hidden else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _state(self, flight: Flight, path: str, asked: Asked, resource: Resource, headers: dict[str, str]) -> State:
        number = len(self.states) + 1
        headers["x-state"] = str(number)
        # Times of arrival are known when it arrives.
        kept = Kept(resource.status, resource.said, flight.asked_at, math.nan, math.nan)
        state = State(number, flight.asked_order, path, asked, kept, resource.vary, headers, flight.began)
        self.states[number] = state
        return state


def _unmodified(request: Request, fields: dict[str, str]) -> bool:
    """RFC 9110 section 13.1, for an origin that knows its own tags and dates by heart."""
    tags = request.headers.get("if-none-match")
    if tags is not None:
        own = fields.get("etag")
        return own is not None and own.removeprefix("W/") in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    since = request.headers.get("if-modified-since")
    return since is not None and since == fields.get("last-modified")
