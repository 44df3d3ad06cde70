"""The HTTP faces of the sidecar: the admin API (unix socket) and the metrics port (loopback)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from meshcache.observe.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from meshcache.extproc.status import Status

_NO_STORE = {"cache-control": "no-store"}


class Sidecar(Protocol):
    """What is shown; `extproc.supervisor.Supervisor` is one."""

    @property
    def ready(self) -> bool:
        """Whether requests may be sent here."""
        ...

    def metrics_page(self) -> bytes:
        """The page for Prometheus."""
        ...


def admin_app(status: Callable[[], Status]) -> Starlette:
    """`GET /status`: a `Status` as JSON."""

    async def show(_request: Request) -> Response:
        return json_response(status())

    return Starlette(routes=[Route("/status", show, methods=["GET"])])


def metrics_app(sidecar: Sidecar) -> Starlette:
    """`/metrics`, `/healthz` (the process runs) and `/readyz` (it answers by a policy set and is not draining)."""

    async def metrics(_request: Request) -> Response:
        return Response(sidecar.metrics_page(), media_type=CONTENT_TYPE, headers=_NO_STORE)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_NO_STORE)

    async def readyz(_request: Request) -> Response:
        if sidecar.ready:
            return PlainTextResponse("ready\n", headers=_NO_STORE)
        return PlainTextResponse("not ready\n", status_code=503, headers=_NO_STORE)

    return Starlette(
        routes=[
            Route("/metrics", metrics, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ]
    )


def json_response(value: Any, status: int = 200) -> Response:
    """`value` (a struct or plain values) as JSON that is never cached."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json", headers=_NO_STORE)
