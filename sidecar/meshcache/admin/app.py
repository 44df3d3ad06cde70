"""The HTTP faces of the sidecar: the admin API (unix socket) and the metrics port (loopback)."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from meshcache.admin.server import UID
from meshcache.observe.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from meshcache.admin.token import Token
    from meshcache.extproc.status import Status
    from meshcache.wasm.module import Module

LONGEST_BODY: Final = 1 << 20
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


class Purges(Protocol):
    """Makes purges; `cli.sidecar` has one over the supervisor's."""

    async def purge(self, body: bytes, who: Mapping[str, Any]) -> msgspec.Struct:
        """Make the purge that `body` (JSON) asks for. Raises `ValueError` with a sentence when it makes no sense."""
        ...

    async def result(self, purge_id: str) -> msgspec.Struct | None:
        """How it stands; None for one that is not known."""
        ...


class Unavailable(Exception):  # noqa: N818 - what is so, not what went wrong
    """It cannot be done now. One line for people."""


class Experiments(Protocol):
    """Shows experiments and takes orders about them; `cli.sidecar` has one over the supervisor's."""

    def overview(self) -> msgspec.Struct:
        """All of them."""
        ...

    async def show(self, name: str) -> msgspec.Struct:
        """One. Raises `LookupError` when there is none of that name."""
        ...

    async def order(self, name: str, order: str, body: bytes, who: Mapping[str, Any]) -> msgspec.Struct:
        """Carry out `order`, as `body` (JSON, may be empty) says more closely; the experiment as it is then.

        Raises `LookupError`, `ValueError` for what makes no sense, and `Unavailable`.
        """
        ...


def admin_app(status: Callable[[], Status], purges: Purges, experiments: Experiments, token: Token) -> Starlette:
    """`GET /status`: a `Status` as JSON; `POST /purge`, `GET /purge/<id>`: a `PurgeResult`.

    `GET /experiments`, `GET /experiments/<name>`, `POST /experiments/<name>/<order>`. Writes take the token.
    """

    async def show(_request: Request) -> Response:
        return json_response(status())

    async def purge(request: Request) -> Response:
        async def done(body: bytes, who: Mapping[str, Any]) -> msgspec.Struct:
            return await purges.purge(body, who)

        return await _write(request, token, done)

    async def result(request: Request) -> Response:
        found = await purges.result(request.path_params["id"])
        if found is None:
            return json_response({"error": "no such purge is remembered"}, 404)
        return json_response(found)

    async def overview(_request: Request) -> Response:
        return json_response(experiments.overview())

    async def one(request: Request) -> Response:
        try:
            return json_response(await experiments.show(request.path_params["name"]))
        except LookupError as error:
            return json_response({"error": str(error)}, 404)

    async def order(request: Request) -> Response:
        name, what = request.path_params["name"], request.path_params["order"]

        async def done(body: bytes, who: Mapping[str, Any]) -> msgspec.Struct:
            return await experiments.order(name, what, body, who)

        return await _write(request, token, done)

    return Starlette(
        routes=[
            Route("/status", show, methods=["GET"]),
            Route("/purge", purge, methods=["POST"]),
            Route("/purge/{id}", result, methods=["GET"]),
            Route("/experiments", overview, methods=["GET"]),
            Route("/experiments/{name}", one, methods=["GET"]),
            Route("/experiments/{name}/{order}", order, methods=["POST"]),
        ]
    )


async def _write(
    request: Request, token: Token, done: Callable[[bytes, Mapping[str, Any]], Awaitable[msgspec.Struct]]
) -> Response:
    """The answer to a write: what `done` makes of the body and of who asks."""
    if not token.opens(request.headers.get("authorization")):
        refusal = json_response({"error": "a token is needed: authorization: Bearer <token>"}, 401)
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                return json_response({"error": f"more than {LONGEST_BODY} bytes"}, 413)
    except ClientDisconnect:
        # Nobody is there to hear of it, and half a request asks for nothing.
        return json_response({"error": "the request was broken off"}, 400)
    try:
        return json_response(await done(bytes(body), {**_peer(request), "token": token.name}))
    except LookupError as error:
        return json_response({"error": str(error)}, 404)
    except ValueError as error:
        return json_response({"error": str(error)}, 400)
    except Unavailable as error:
        return json_response({"error": str(error)}, 503)


def _peer(request: Request) -> dict[str, Any]:
    """The user at the other end of a unix socket, as the kernel names him (`admin.server`)."""
    if request.client is None or not request.client.host.startswith(UID):
        return {}
    uid = int(request.client.host.removeprefix(UID))
    try:
        return {"uid": uid, "user": pwd.getpwuid(uid).pw_name}
    except KeyError:
        return {"uid": uid}


def metrics_app(sidecar: Sidecar, module: Module | None = None) -> Starlette:
    """`/metrics`, `/healthz` (the process runs) and `/readyz` (it answers by a policy set and is not draining).

    `/wasm/meshcache.wasm` is the filter for Envoy, for a mesh's agent to fetch; its ETag is its SHA-256.
    """

    async def metrics(_request: Request) -> Response:
        return Response(sidecar.metrics_page(), media_type=CONTENT_TYPE, headers=_NO_STORE)

    async def readyz(_request: Request) -> Response:
        if sidecar.ready:
            return PlainTextResponse("ready\n", headers=_NO_STORE)
        return PlainTextResponse("not ready\n", status_code=503, headers=_NO_STORE)

    return Starlette(
        routes=[
            Route("/metrics", metrics, methods=["GET"]),
            _module_route(module),
            Route("/healthz", _healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ]
    )


def module_app(module: Module) -> Starlette:
    """The filter for Envoy alone, as `metrics_app` has it, and `/healthz`."""
    return Starlette(routes=[_module_route(module), Route("/healthz", _healthz, methods=["GET"])])


async def _healthz(_request: Request) -> Response:
    return PlainTextResponse("ok\n", headers=_NO_STORE)


def _module_route(module: Module | None) -> Route:
    async def wasm(request: Request) -> Response:
        if module is None:
            return PlainTextResponse("the filter is not built\n", status_code=404, headers=_NO_STORE)
        etag = f'"{module.sha256}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(module.content, media_type="application/wasm", headers=headers)

    return Route("/wasm/meshcache.wasm", wasm, methods=["GET"])


def json_response(value: Any, status: int = 200) -> Response:
    """`value` (a struct or plain values) as JSON that is never cached."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json", headers=_NO_STORE)
