"""What `meshcache up` checks before it starts anything; each check raises `StartError` with one line."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from meshcache.cli.options import refresh_cluster_name
from meshcache.cli.paths import own_name, shipped_policies
from meshcache.envoy.clusters import Origin
from meshcache.observe.logs import redact
from meshcache.policy.values import LMDB
from meshcache.process import StartError, UsageError
from meshcache.tiers.base import TierError
from meshcache.tiers.redis import RedisTier
from meshcache.wasm import module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from meshcache.policy.snapshot import Snapshot

REDIS_TIMEOUT: Final = 3.0
_HOST: Final = re.compile(r"[-0-9a-z_.]+|[0-9a-f:.]+(?:%[-0-9a-z_.]+)?")
"""A name or an address, in lower case; names of other scripts in the form that DNS knows (`xn--`)."""


def filter_for_envoy(log: FilteringBoundLogger) -> Path | None:
    """The built filter; None when there is none that Envoy could load, which costs speed and nothing else, and a line
    of the log.
    """
    found = module.find()
    what = module.fault(found)
    if found is None or what:
        log.warning(f"without the filter, which is {what}", build_it_by=f"{own_name()} wasm build")
        return None
    if not found.current:
        log.warning("the filter is older than its sources", build_it_by=f"{own_name()} wasm build")
    return found.path


def parse_origin(text: str, option: str = "--origin") -> Origin:
    """`--origin`: scheme, host and port, nothing else. The origin sees its own name as `host`."""
    parts, port = _split(text, option)
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host) or port == 0:
        raise UsageError(f"{option} {redact(text)!r} is not http://HOST:PORT or https://HOST:PORT")
    if parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(f"{option} {redact(text)!r}: give scheme, host and port only; paths come from the requests")
    tls = parts.scheme == "https"
    authority = parts.netloc if port is not None else parts.netloc.rstrip(":")
    return Origin(host, port or (443 if tls else 80), tls=tls, host_header=authority)


def parse_refresh_clusters(given: Sequence[str], *, reserved: str = "") -> dict[str, Origin]:
    """`--refresh-cluster NAME=URL`, each: the name of an Envoy cluster to be made, and where it leads."""
    found: dict[str, Origin] = {}
    for text in given:
        name, mark, url = text.partition("=")
        if not mark:
            raise UsageError(f"--refresh-cluster {redact(text)!r} is not NAME=URL, such as replica=http://HOST:PORT")
        refresh_cluster_name(name)
        if name in found or name == reserved:
            raise UsageError(f"--refresh-cluster {name}: there is a cluster of this name already")
        found[name] = parse_origin(url, f"--refresh-cluster {name}:")
    return found


async def check_warm(url: str, option: str) -> None:
    """The warm store: empty, `lmdb`, or a Redis that answers and lets us in. `option` is where the URL was given."""
    if not url or url == LMDB:
        return
    try:
        store = RedisTier(url, connect_timeout=REDIS_TIMEOUT, socket_timeout=REDIS_TIMEOUT)
    except ValueError as error:
        raise StartError(f"{option}: {error}") from error
    try:
        await store.ping()
    except TierError as error:
        reason = str(error).removeprefix(f"{store.where}: ")
        raise StartError(f"{option} {store.where} cannot be used: {reason}; start it, or leave {option} out") from error
    finally:
        await store.close()


def policy_folder(given: Path | None) -> tuple[Path, bool]:
    """The folder to watch, and whether it was made just now from the shipped examples.

    A folder that was named must be there. Without a name it is `./policies`, which a clone has; elsewhere the
    examples are copied to it, because they are meant to be edited.
    """
    if given is not None:
        if not given.is_dir():
            what = "is not a folder" if given.exists() else "does not exist"
            raise StartError(f"--policies {given} {what}; leave it out to get the examples")
        if not os.access(given, os.R_OK | os.X_OK):
            raise StartError(f"--policies {given} cannot be read")
        return given, False
    folder = Path("policies")
    if folder.is_dir():
        return folder, False
    try:
        shutil.copytree(shipped_policies(), folder)
    except (OSError, shutil.Error) as error:
        raise StartError(f"the example policies cannot be copied to {folder.absolute()}: {error}") from error
    return folder, True


def cached_path(snapshot: Snapshot) -> str | None:
    """A path that some route caches, to try it by; None when nothing is cached or only under conditions."""
    experiments = {experiment.route for experiment in snapshot.experiments}
    for route in snapshot.routes:
        if route.policy is None and route.name not in experiments:
            continue
        for match in route.matches:
            plain = not match.hosts and not match.headers and not match.query and match.regex is None
            if plain and (not match.methods or "GET" in match.methods):
                return match.exact or f"{match.prefix}/"
    return None


def _split(url: str, option: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:
        # What the library says of it quotes it; and where a password ends in a URL that is none, nobody knows.
        shown = "***" if "@" in url else repr(url)
        raise UsageError(f"{option} {shown} is malformed: expected http://HOST:PORT or https://HOST:PORT") from None
