"""Tells an address of the operator's what was decided: JSON by POST, a few tries, and never in anybody's way."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from meshcache.policy.compiled import Webhook

MOST_WAITING: Final = 100
"""Messages that wait; one more pushes out the oldest."""
TRIES: Final = 5
FIRST_PAUSE: Final = 0.5
"""Seconds before the second try; each further pause is twice as long."""
_BEYOND_HELP: Final = frozenset({400, 401, 403, 404, 405, 410, 413, 422})
"""Status codes that a second try would not change."""


class Notifier:
    """Belongs to one event loop."""

    def __init__(
        self,
        webhook: Callable[[], Webhook | None],
        log: FilteringBoundLogger,
        count: Callable[[str], None] = lambda _outcome: None,
    ) -> None:
        """`webhook` is asked for each message anew; `count` is told `sent`, `failed` or `dropped` for each."""
        self._webhook = webhook
        self._log = log
        self._count = count
        self._waiting: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._failing = False

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send `message` soon. Never waits."""
        if self._webhook() is None:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._waiting.get_nowait()
            self._count("dropped")
        self._waiting.put_nowait(message)

    async def run(self) -> None:
        """Send what there is to send, until cancelled."""
        while True:
            message = await self._waiting.get()
            webhook = self._webhook()
            if webhook is None:
                continue
            trouble = await self._send(webhook, message)
            self._count("failed" if trouble else "sent")
            if trouble and not self._failing:
                self._log.warning("webhook could not be told of a decision", host=_host(webhook.url), error=trouble)
            elif not trouble and self._failing:
                self._log.info("webhook takes decisions again", host=_host(webhook.url))
            self._failing = bool(trouble)

    async def _send(self, webhook: Webhook, message: Mapping[str, Any]) -> str:
        """Why it could not be sent; empty when it was. The library's own words may hold the address, and a secret."""
        # Here, so that who needs no webhook need not load the client.
        import httpx

        pause, trouble = FIRST_PAUSE, ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311  spreads load, hides nothing
                pause *= 2
            try:
                async with (
                    asyncio.timeout(webhook.timeout),
                    httpx.AsyncClient(timeout=webhook.timeout, follow_redirects=False, trust_env=False) as client,
                    # What it says is not read: it may be without end, or a little that is packed of very much.
                    client.stream("POST", webhook.url, json=dict(message)) as answer,
                ):
                    status = answer.status_code
            except Exception as error:
                # Whatever it is (a host that no name service takes is a `UnicodeError`), the next one is to be sent.
                trouble = type(error).__name__
                continue
            if 200 <= status < 300:
                return ""
            trouble = f"status {status}"
            if status in _BEYOND_HELP:
                break
        return trouble


def _host(url: str) -> str:
    """What of an address may be told: paths, queries and user info of webhooks are secrets as a rule."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
