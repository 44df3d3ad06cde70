"""Small makers for the tests of purges."""

from __future__ import annotations

from meshcache.engine.records import StoredResponse


def response(**changes: object) -> StoredResponse:
    values = {
        "key": b"key",
        "selecting": (),
        "status": 200,
        "fields": (),
        "request_time": 1000.0,
        "response_time": 1000.5,
        "initial_age": 0.0,
        "authorized": False,
        "body": b"hello",
    } | changes
    return StoredResponse(**values)  # type: ignore[arg-type]
