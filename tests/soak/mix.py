"""What clients of a soak ask for, and what the origin answers to it: the path of a request says both.

/hit/7         small, fresh for an hour              /stale/7     fresh for a second, stale for a minute
/validated/7   stale at once, confirmed by 304       /language/7  one of three variants
/miss/123      never asked for before                /chunked/123 the same, its length not announced
/large/3       some hundred KiB, fresh for an hour   /cut/123     breaks off in the middle of its body
/slow/123      the answer takes a while
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

LANGUAGES: Final = ("de", "en", "fr")
LARGE_BYTES: Final = (96 << 10, 300 << 10, 700 << 10)
CACHE_CONTROL: Final = {
    "hit": "max-age=3600",
    "stale": "max-age=1, stale-while-revalidate=60",
    "validated": "max-age=0",
    "language": "max-age=3600",
    "large": "max-age=3600",
}


class End(Enum):
    """How a request ends."""

    WHOLE = auto()
    LEAVES_EARLY = auto()
    """The client resets its connection before there is an answer."""
    LEAVES_HALF_WAY = auto()
    """The client resets its connection in the middle of the body."""
    CUT = auto()
    """The origin breaks off: no whole answer may come."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to come."""

    method: str
    path: str
    fields: str = ""
    """More header lines, each with its end."""
    end: End = End.WHOLE
    body: int | None = None
    """The length of the body that a 200 has to have."""


class Mix:
    """A random sequence of requests, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._unique = 0
        self._kinds = list(_WEIGHTS)
        self._weights = list(_WEIGHTS.values())
        self._waiting: list[str] = []

    def next(self) -> Ask:
        """The next request."""
        if not self._waiting:
            self._waiting = self._random.choices(self._kinds, self._weights, k=1000)
        kind = self._waiting.pop()
        number = self._random.randrange(400)
        match kind:
            case "range":
                return Ask("GET", f"/hit/{number}", f"range: bytes={number % 90}-{number % 90 + 9}\r\n")
            case "conditional":
                return Ask("GET", f"/hit/{number}", 'if-none-match: "hit"\r\n')
            case "head":
                return Ask("HEAD", f"/hit/{number}")
            case "post":
                return Ask("POST", f"/hit/{number}", "content-length: 0\r\n")
            case "language":
                language = LANGUAGES[number % 3]
                path = f"/language/{number % 50}"
                return Ask("GET", path, f"accept-language: {language}\r\n", body=len(body_of(path)))
            case "large":
                return Ask("GET", f"/large/{number % 12}", body=large_size(number % 12))
            case "large-left":
                return Ask("GET", f"/large/{number % 12}", end=End.LEAVES_HALF_WAY)
            case "left":
                return Ask("GET", self._one_more("slow"), end=End.LEAVES_EARLY)
            case "cut":
                return Ask("GET", self._one_more("cut"), end=End.CUT)
            case "miss" | "chunked":
                path = self._one_more(kind)
                return Ask("GET", path, body=len(body_of(path)))
        path = f"/{kind}/{number}"
        return Ask("GET", path, body=len(body_of(path)))

    def _one_more(self, kind: str) -> str:
        self._unique += 1
        return f"/{kind}/{self._seed}-{self._unique}"


_WEIGHTS: Final = {
    "hit": 40.0,
    "stale": 10.0,
    "validated": 10.0,
    "language": 6.0,
    "miss": 14.0,
    "chunked": 4.0,
    "range": 4.0,
    "conditional": 4.0,
    "head": 2.0,
    "post": 0.5,
    "large": 1.5,
    "large-left": 0.5,
    "left": 2.0,
    "cut": 1.5,
}


def large_size(number: int) -> int:
    """Bytes of the body at `/large/<number>`."""
    return LARGE_BYTES[number % len(LARGE_BYTES)]


def body_of(path: str) -> bytes:
    """The body at a path that is not large: it begins with the path."""
    return f"{path} ".encode().ljust(400, b".")
