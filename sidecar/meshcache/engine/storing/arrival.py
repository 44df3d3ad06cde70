"""A response as it arrives: what its head says is read once, for whether it is stored and for what is said of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.judge import read
from meshcache.engine.sharing import may_be_personal
from meshcache.rfc.age import age_value
from meshcache.rfc.tags import response_tags

if TYPE_CHECKING:
    from meshcache.engine.target import Target
    from meshcache.message import Response

_AUTHORIZATION = frozenset({"authorization"})


class Arrival:
    """A response that has come for a target."""

    __slots__ = ("age", "asked", "personal", "reading", "response", "tags", "target", "time")

    def __init__(self, target: Target, response: Response, time: float) -> None:
        """`time`: Unix seconds at which its head came."""
        self.target = target
        self.response = response
        self.time = time
        policy, headers, asked = target.policy.freshness, response.headers, target.request.headers
        self.asked = asked.without(_AUTHORIZATION) if "authorization" in policy.ignore else asked
        """The request's header fields, as far as the policy minds them."""
        self.age = age_value(headers.get("age"))
        """The seconds that its `age` field gives."""
        self.tags = response_tags(headers)
        """None when there are more or longer ones than can be kept."""
        self.reading = read(
            policy,
            status=response.status,
            headers=headers,
            age=self.age,
            request_time=target.request_time,
            response_time=time,
        )
        self.personal = may_be_personal(self.asked, headers, self.reading.control, policy)
        """Whether it may be meant for its caller alone."""

    @property
    def granted(self) -> float | None:
        """Its lifetime in seconds, as those may rely on who share it; None when nothing gives it one."""
        granted, by_origin = self.reading.lifetimes
        return by_origin if self.personal else granted

    @property
    def fresh_for(self) -> float:
        """For how many seconds it is fresh, if it may be stored; negative when it is stale."""
        return (self.granted or 0.0) - self.reading.initial_age

    @property
    def is_kept(self) -> bool:
        """Whether all that it is judged by is stored, and nothing added to that: see `rfc.storing.storable_fields`."""
        reading = self.reading
        names, control = reading.headers.names, reading.control
        return (
            "date" in names
            and "connection" not in names
            and not control.no_cache_fields
            and not control.private_fields
            and names.isdisjoint(reading.policy.targets)
        )
