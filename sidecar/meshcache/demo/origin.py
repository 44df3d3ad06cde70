"""A small "image understanding" API to try meshcache against: `python -m meshcache.demo.origin --port 8000`.

`GET /v1/images/{id}/labels` answers as a model would: the same picture gives the same labels, after `--latency-ms`.
Answers are fresh for ten seconds, carry an `etag` and tags (the picture, the model) and vary on `accept-language`,
so that a policy that only expires and one that serves stale while it refreshes can be told apart. `POST` to the same
address has the picture looked at again: the labels change, and what caches hold of it is no longer true.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import socket
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from meshcache.process import StartError, bind_tcp, die_with_parent

if TYPE_CHECKING:
    from starlette.requests import Request

MODEL: Final = "demo-labels-1"
FRESH_SECONDS: Final = 10
MAX_LATENCY_MS: Final = 30_000
MAX_CHANGED: Final = 10_000
MAX_ID: Final = 200
"""Longest picture id, characters."""

_LABELS: Final = {
    "en": ("cat", "dog", "bicycle", "street", "tree", "person", "car", "boat", "bridge", "flower", "bird", "cup"),
    "de": ("Katze", "Hund", "Fahrrad", "Straße", "Baum", "Mensch", "Auto", "Boot", "Brücke", "Blume", "Vogel", "Tasse"),
}


class Model:
    """Labels for picture ids, deterministic for each id and the number of times it was looked at again."""

    def __init__(self) -> None:
        self._revisions: OrderedDict[str, int] = OrderedDict()

    def revision(self, picture: str) -> int:
        """How often the labels of `picture` have changed."""
        return self._revisions.get(picture, 0)

    def change(self, picture: str) -> int:
        """Look at `picture` again; returns its new revision. Only the latest `MAX_CHANGED` are remembered."""
        revision = self._revisions.pop(picture, 0) + 1
        self._revisions[picture] = revision
        if len(self._revisions) > MAX_CHANGED:
            self._revisions.popitem(last=False)
        return revision

    def labels(self, picture: str, language: str, top: int) -> list[dict[str, str | float]]:
        """The `top` most likely labels with scores between 0 and 1, best first."""
        seed = hashlib.blake2b(f"{picture}\0{self.revision(picture)}".encode(), digest_size=16).digest()
        names = _LABELS[language]
        order = sorted(range(len(names)), key=lambda index: seed[index])
        score = 0.99
        found: list[dict[str, str | float]] = []
        for place, index in enumerate(order[:top]):
            found.append({"label": names[index], "score": round(score, 3)})
            score *= 0.4 + seed[15 - place % 4] / 512
        return found


def build_app(latency_ms: int) -> Starlette:
    """The API with a delay of `latency_ms` for whatever asks the model."""
    model = Model()
    served = 0

    def count() -> dict[str, str]:
        nonlocal served
        served += 1
        return {"x-origin-request": str(served)}

    async def show(request: Request) -> Response:
        headers = count()
        picture = request.path_params["picture"]
        if len(picture) > MAX_ID:
            return JSONResponse({"error": "picture id is too long"}, status_code=400, headers=headers)
        top = _number(request.query_params.get("top"), 3, 1, 10)
        await asyncio.sleep(_number(request.query_params.get("latencyMs"), latency_ms, 0, MAX_LATENCY_MS) / 1000)
        language = _language(request.headers.get("accept-language", ""))
        body = {
            "image": picture,
            "model": MODEL,
            "revision": model.revision(picture),
            "labels": model.labels(picture, language, top),
        }
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers |= {
            "cache-control": f"public, max-age={FRESH_SECONDS}",
            "etag": etag,
            "vary": "accept-language",
            "content-language": language,
            "cache-tag": f"image-{quote(picture, safe='')}, model-{MODEL}",
        }
        # Validation costs the full delay as well: to know whether the labels still hold, the model looks again.
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="application/json", headers=headers)

    async def change(request: Request) -> Response:
        headers = count() | {"cache-control": "no-store"}
        picture = request.path_params["picture"]
        if len(picture) > MAX_ID:
            return JSONResponse({"error": "picture id is too long"}, status_code=400, headers=headers)
        await asyncio.sleep(latency_ms / 1000)
        return JSONResponse({"image": picture, "revision": model.change(picture)}, headers=headers)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n", headers={"cache-control": "no-store"})

    return Starlette(
        routes=[
            Route("/v1/images/{picture}/labels", show, methods=["GET"]),
            Route("/v1/images/{picture}/labels", change, methods=["POST"]),
            Route("/healthz", healthz, methods=["GET"]),
        ]
    )


def _number(text: str | None, default: int, least: int, most: int) -> int:
    """`text` as a number within bounds; `default` for what is none."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 9:
        return default
    return max(least, min(most, int(text)))


def _language(accepted: str) -> str:
    """The first known language of an `accept-language`; its weights are not worth a demo's while."""
    for part in accepted[:1000].split(","):
        tag = part.partition(";")[0].strip().partition("-")[0].lower()
        if tag in _LABELS:
            return tag
    return "en"


def _matches(condition: str, etag: str) -> bool:
    tags = (part.strip().removeprefix("W/") for part in condition.split(","))
    return any(tag in {"*", etag} for tag in tags)


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m meshcache.demo.origin", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free; it is printed")
    parser.add_argument("--fd", type=int, help="serve on this listening socket instead")
    parser.add_argument("--latency-ms", type=int, default=150, help="delay of what asks the model")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 0 <= options.latency_ms <= MAX_LATENCY_MS:
        parser.error(f"--latency-ms is 0 to {MAX_LATENCY_MS}")
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        sock = (
            socket.socket(fileno=options.fd)
            if options.fd is not None
            else bind_tcp(options.host, options.port, "--host/--port")
        )
    except (StartError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    host, port = sock.getsockname()[:2]
    sys.stdout.write(f"demo origin on http://{f'[{host}]' if ':' in host else host}:{port}\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        build_app(options.latency_ms),
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        loop="uvloop",
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[sock])
    return 0


if __name__ == "__main__":
    sys.exit(main())
