"""Checks of single values in policy documents: names, hosts, paths, header names, addresses.

Each takes what stands in the document and returns it in the form that the compiler uses, or raises `ValueError` with
a sentence that says what is expected, with an example.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from meshcache.policy.patterns import check_pattern, literal_range
from meshcache.policy.trust import parse_network

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,127}", re.ASCII)
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}", re.ASCII)  # RFC 9110 section 5.6.2
LABEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?|[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_](?:[-a-z0-9_.]*[a-z0-9_])?", re.ASCII)
_PATH = re.compile(r"/[!-~]{0,1023}", re.ASCII)
PARAMETER = re.compile(r"[^\x00-\x20\x7f&=#]{1,256}")
PARAMETER_VALUE = re.compile(r"[^\x00-\x20\x7f&#]{0,1024}")
_FIELD_VALUE = re.compile(r"[!-~]{1,256}", re.ASCII)
CLUSTER = re.compile(r"[A-Za-z0-9_](?:[-A-Za-z0-9_.|:/]{0,253}[A-Za-z0-9_])?", re.ASCII)
CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
MOST_MONEY: Final = 1_000_000
LISTEN = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*):([0-9]{1,5})", re.ASCII)

MATCH_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")


def shown(value: object) -> str:
    """A value as an error message quotes it: never longer than a line can bear."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _text(value: object, wanted: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        raise ValueError(f"expected {wanted}, got {shown(value)}; put it in quotes if it is meant as text")
    raise ValueError(f"expected {wanted}, got {shown(value)}")


def _fitting(value: object, pattern: re.Pattern[str], wanted: str) -> str:
    text = _text(value, wanted)
    if not pattern.fullmatch(text):
        raise ValueError(f"expected {wanted}, got {shown(text)}")
    return text


def name(value: object) -> str:
    """A name of at most 63 characters as Kubernetes has them; it appears in metric labels and headers."""
    text = _text(value, "a name such as lru-swr")
    if not NAME.fullmatch(text):
        raise ValueError(f"expected a name of small letters, digits, - and . such as lru-swr, got {shown(text)}")
    return text


def uid(value: object) -> str:
    """What tells an object from another one of the same name, as Kubernetes gives it."""
    return _fitting(value, UID, "a uid such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8")


def label_name(value: object) -> str:
    """The name of a pod label or of an environment variable."""
    text = _text(value, "the name of a label or variable")
    if not LABEL.fullmatch(text):
        raise ValueError(f"expected the name of a label or variable such as version, got {shown(text)}")
    return text


def header_name(value: object) -> str:
    """A field name (RFC 9110 section 5.1) in lower case."""
    lower = _fitting(value, TOKEN, "a header name such as x-user-id").lower()
    if lower.startswith("x-meshcache-"):
        raise ValueError("x-meshcache-* headers are internal and cannot be used here")
    return lower


NEVER_STRIPPED = frozenset(
    {
        "authorization",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "pragma",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    }
)
"""What a request cannot do without: its frame, its conditions, and the credentials that its caller counts on."""


def stripped_header(value: object) -> str:
    """A request header that may be kept from the origin."""
    lower = header_name(value)
    if lower in NEVER_STRIPPED or lower.startswith("x-envoy-"):
        raise ValueError(f"{lower} cannot be kept from the origin")
    return lower


OBEYED: Final = ("cache-control", "expires", "pragma")
"""What an origin says to all caches, and so is no target."""


def target(value: object) -> object:
    """A field that an origin may address caches by, such as `cdn-cache-control`: never `cache-control` itself."""
    if isinstance(value, str) and value.lower() in OBEYED:
        raise ValueError(f"{value} is obeyed where no target is there, and is none itself")
    return value


def cookie_name(value: object) -> str:
    """A cookie's name (RFC 6265 section 4.1.1); case counts."""
    return _fitting(value, TOKEN, "a cookie name such as sid")


def claim(value: object) -> str:
    """The name of a claim at the top of a token (RFC 7519 section 4)."""
    text = _text(value, "the name of a claim such as sub")
    if not text or len(text) > 256:
        raise ValueError(f"expected the name of a claim such as sub, got {shown(text)}")
    return text


def single_value(value: object) -> str:
    """A header value without commas and spaces, so that a header which is sent twice can never equal it."""
    text = _text(value, "a header value such as v2")
    if not _FIELD_VALUE.fullmatch(text) or "," in text:
        raise ValueError(f"expected a header value without spaces and commas such as v2, got {shown(text)}")
    return text


def host_pattern(value: object) -> str:
    """A host, or `*.` and a host, in lower case."""
    text = _text(value, "a host such as api.example.com").lower().removesuffix(".")
    if text == "*":
        raise ValueError("leave hosts out to match every host")
    if ":" in text:
        raise ValueError(f"a host is given without port and scheme, such as api.example.com, got {shown(text)}")
    if len(text) > 253 or ".." in text or not _HOST.fullmatch(text):
        raise ValueError(f"expected a host such as api.example.com or *.example.com, got {shown(text)}")
    return text


def url_path(value: object) -> str:
    """A path without query."""
    text = _text(value, "a path such as /v1/images")
    if not _PATH.fullmatch(text):
        raise ValueError(f"expected a path that begins with /, such as /v1/images, got {shown(text)}")
    if "?" in text or "#" in text:
        raise ValueError(f"a path is given without query and fragment, got {shown(text)}")
    return text


def pattern(value: object) -> str:
    """A regular expression of RE2."""
    text = _text(value, "a regular expression such as application/.*")
    check_pattern(text)
    return text


def path_pattern(value: object) -> str:
    """A regular expression of RE2 for whole paths, without query."""
    text = _text(value, "a regular expression such as /v1/images/[0-9]+")
    check_pattern(text)
    found = literal_range(text)
    if found is not None and not (found[0] < b"0" and found[1] >= b"/"):
        raise ValueError(f"fits no path: a path begins with /, such as /v1/images/[0-9]+, got {shown(text)}")
    return text


def parameter_name(value: object) -> str:
    """The name of a query parameter, as it is sent."""
    return _fitting(value, PARAMETER, "the name of a query parameter as it is sent, such as format")


def parameter_value(value: object) -> str:
    """A value of a query parameter, as it is sent."""
    text = _text(value, "a value such as json")
    if not PARAMETER_VALUE.fullmatch(text):
        raise ValueError(f"expected a value as it is sent, with %20 for a blank and %26 for &, got {shown(text)}")
    return text


def match_method(value: object) -> str:
    """A method that a route may ask for."""
    text = _text(value, "a method such as GET")
    if text not in MATCH_METHODS:
        raise ValueError(f"expected one of {', '.join(MATCH_METHODS)}, got {shown(text)}")
    return text


def key_method(value: object) -> str:
    """A method whose answers may be cached."""
    text = _text(value, "a method such as GET")
    if text == "POST":
        raise ValueError("POST: not supported yet")
    if text not in ("GET", "HEAD"):
        raise ValueError(f"expected GET or HEAD, got {shown(text)}")
    return text


def glob(value: object) -> str:
    """The name of a query parameter, or its beginning and a `*`."""
    text = _text(value, "a parameter name such as page or utm_*")
    if not text or len(text) > 256 or "*" in text[:-1]:
        raise ValueError(f"expected a parameter name, with * only at its end, such as utm_*, got {shown(text)}")
    return text


def later(*names: str) -> Callable[[object], object]:
    """A check that says of some values that they are not built yet."""

    def check(value: object) -> object:
        if isinstance(value, str) and value in names:
            raise ValueError(f"{value}: not supported yet")
        return value

    return check


def amount(value: object) -> float:
    """An amount of money, in the unit of its currency."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_MONEY:
        raise ValueError(f"expected an amount of money such as 0.002, got {shown(value)}")
    return float(value)


def currency(value: object) -> str:
    """A currency by its code (ISO 4217)."""
    return _fitting(value, CURRENCY, "the code of a currency such as USD")


def via(value: object) -> str:
    """How background refreshes go: `envoy`, or the name of an Envoy cluster."""
    if isinstance(value, str) and "://" in value:
        raise ValueError(f"expected a name, got {shown(value)}; `--refresh-cluster NAME=URL` says where a name leads")
    return _fitting(value, CLUSTER, "envoy or the name of an Envoy cluster")


def cluster(value: object) -> str:
    """The name of an Envoy cluster to which refreshes may go."""
    text = _fitting(value, CLUSTER, "the name of an Envoy cluster")
    if text == "envoy":
        raise ValueError("envoy is what `refresh.via` has by default, not the name of a cluster")
    return text


def network(value: object) -> str:
    """An address range, in canonical form."""
    return str(parse_network(_text(value, "an address range such as 10.0.0.0/8")))


def listen_address(value: object) -> str:
    """`HOST:PORT`."""
    text = _text(value, "an address such as 127.0.0.1:9464")
    match = LISTEN.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"expected HOST:PORT such as 127.0.0.1:9464, got {shown(text)}")
    return text


def _url(value: object, example: str) -> tuple[str, str]:
    """The text and its scheme. Messages quote nothing of the URL, nor what the library says of it: it may hold a
    password.
    """
    text = _text(value, f"a URL such as {example}") if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"expected a URL such as {example}: what stands for host and port is none (in a password write / as %2F, "
            "? as %3F, # as %23, [ as %5B)"
        ) from None
    if not text or any(ord(character) <= 32 for character in text):
        raise ValueError(f"expected a URL such as {example}")
    return text, parts.scheme


LMDB: Final = "lmdb"
"""As the address of the warm store: the LMDB file in the data folder."""


def warm_url(value: object) -> str:
    """`redis://` or `rediss://` with a host, or `lmdb` for the file in the data folder."""
    text, scheme = _url(value, "redis://cache-redis:6379")
    if text == LMDB:
        return text
    if scheme not in ("redis", "rediss") or not urlsplit(text).hostname:
        raise ValueError("expected a URL such as redis://cache-redis:6379 (or rediss://, or lmdb)")
    for option, _ in parse_qsl(urlsplit(text).query, keep_blank_values=True):
        # As the store itself has it (`tiers.redis_client`), which is asked too late for an edit to be refused.
        if option != "db" and not option.startswith("ssl_"):
            raise ValueError(f"the URL has the option {shown(option)}; only db and ssl_* are known")
    return text


def webhook_url(value: object) -> str:
    """`http://` or `https://` with a host. What is wrong with it is told without quoting it: it may hold a secret."""
    wanted = "a URL such as https://hooks.example.com/meshcache"
    if not isinstance(value, str) or not 1 <= len(value) <= 2048 or not value.isprintable() or " " in value:
        raise ValueError(f"expected {wanted}")
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError(f"expected {wanted}")
    return value


def told_url(text: str) -> str:
    """What of a URL may be shown: no password, and of a web address, which may be secret as a whole, the host alone."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "***"
    if parts.scheme in ("http", "https"):
        return f"{parts.scheme}://{host}/***"
    return text if "@" not in parts.netloc else f"{parts.scheme}://***@{host}{parts.path}"


_FOLDER = re.compile(r"(?![A-Za-z][-+.0-9A-Za-z]*:)[^\x00-\x1f\x7f\ud800-\udfff]+")


def is_folder_path(text: str) -> bool:
    """Whether it names a folder as it is: nothing in it is a URL's."""
    return _FOLDER.fullmatch(text) is not None


def cold_url(value: object) -> str:
    """A folder, as a path or as `file://`."""
    if isinstance(value, str) and is_folder_path(value):
        return value
    text, scheme = _url(value, "file:///var/lib/meshcache/cold")
    if scheme in ("s3", "gs", "az", "azure", "abfs", "abfss", "http", "https"):
        raise ValueError(f"{scheme}://: not supported yet; give a folder or a file:// URL")
    if not text.startswith(("file:///", "file://localhost/")):
        raise ValueError("expected a folder or a URL such as file:///var/lib/meshcache/cold")
    return text


MOST_WAIT: Final = 60.0
MOST_DEADLINE: Final = 10.0
"""Seconds that a policy may let requests wait for another's answer: Envoy has to know a bound from the start."""


def deadline(seconds: float) -> float:
    """How long a tier may take for a look-up."""
    if not 0.0 < seconds <= MOST_DEADLINE:
        raise ValueError(f"expected a duration above 0s and at most {MOST_DEADLINE:.0f}s, for example 50ms")
    return seconds


def max_wait(seconds: float) -> float:
    """How long a request may wait for another's answer."""
    if not 0.0 < seconds <= MOST_WAIT:
        raise ValueError(f"expected a duration above 0s and at most {MOST_WAIT:.0f}s, for example 10s")
    return seconds
