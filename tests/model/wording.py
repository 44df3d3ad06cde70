"""The structures of `rules.py` as header fields: what the engine gets to read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshcache.rfc.fields import format_http_date

if TYPE_CHECKING:
    from model.rules import Policy, Said, Wanted

STYLES = ("plain", "upper", "quoted", "crowded", "reversed")
"""Ways of writing one and the same thing."""
_FILLER = ("x-unknown=7", 'note="a, no-store"')


def response_directives(said: Said, style: str = "plain") -> str | None:
    """`cache-control` of a response; None when it says nothing."""
    return _written(
        {
            "max-age": said.max_age,
            "s-maxage": said.s_maxage,
            "stale-while-revalidate": said.swr,
            "stale-if-error": said.sie,
            "no-store": said.no_store,
            "no-cache": ", ".join(said.hidden) if said.hidden else said.no_cache,
            "private": said.private,
            "public": said.public,
            "must-revalidate": said.must_revalidate,
            "proxy-revalidate": said.proxy_revalidate,
            "must-understand": said.must_understand,
            "immutable": said.immutable,
        },
        style,
    )


def request_directives(wanted: Wanted, style: str = "plain") -> str | None:
    """`cache-control` of a request; None when it says nothing."""
    stale = wanted.max_stale
    return _written(
        {
            "no-cache": wanted.no_cache,
            "no-store": wanted.no_store,
            "only-if-cached": wanted.only_if_cached,
            "max-age": wanted.max_age,
            "min-fresh": wanted.min_fresh,
            "max-stale": True if stale == math.inf else None if stale is None else int(stale),
            "stale-if-error": wanted.sie,
        },
        style,
    )


def _written(directives: dict[str, int | str | bool | None], style: str) -> str | None:
    members = []
    for name, value in directives.items():
        if value is None or value is False:
            continue
        if value is True:
            members.append(name)
        elif isinstance(value, str) or style == "quoted":
            members.append(f'{name}="{value}"')
        else:
            members.append(f"{name}={value}")
    if not members:
        return None
    match style:
        case "upper":
            return ", ".join(members).upper()
        case "crowded":
            return ",".join((*_FILLER, *members)) + ","
        case "reversed":
            return " ,\t".join(reversed(members))
    return ", ".join(members)


def date(seconds: float) -> str:
    """An HTTP-date; what lies before all dates is written as no date at all."""
    return "0" if seconds == -math.inf else format_http_date(seconds)


def policy_text(policy: Policy) -> str:
    """`spec.freshness` in YAML."""
    parts = [f"mode: {'override' if policy.override else 'rfc9111'}"]
    parts += [f"staleWhileRevalidate: {policy.swr:g}s", f"staleIfError: {policy.sie:g}s"]
    parts += [] if policy.default is None else [f"defaultTtl: {policy.default:g}s"]
    parts += [] if policy.longest == math.inf else [f"maxTtl: {policy.longest:g}s"]
    parts += [f"refreshAhead: {policy.ahead}%"] if policy.ahead else []
    negative = ", ".join(f"{{status: {status}, ttl: {ttl:g}s}}" for status, ttl in policy.negative.items())
    return f"{{{', '.join(parts)}, negative: [{negative}]}}"
