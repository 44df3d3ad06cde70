"""Logs: one JSON line on stderr for each change of state, or a readable form for a terminal. Never a secret.

What other libraries log through `logging` comes out in the same form, from warnings upwards.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

import structlog

from meshcache.observe.stderr import LogStream

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

MASK: Final = "***"

# The user info of a URL; bounded, so that a long text without `@` costs linear time.
_USER_INFO: Final = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]{0,31}://)(?P<user>[^\s/?#@:]{0,512}):[^\s/?#]{1,2048}@"
)
_QUERY_SECRET: Final = re.compile(
    r"(?i)(?P<name>[?&](?:[a-z0-9_-]{0,40}(?:password|passwd|secret|token|signature|access_key|apikey|api_key))=)[^&#\s]{1,4096}"
)
_SECRET_KEYS: Final = re.compile(r"(?i)(?:password|passwd|secret|token|authorization|cookie|private_key|access_key)$")


def redact(text: str) -> str:
    """`text` with the passwords of all URLs in it, and secrets in their queries, replaced by `***`."""
    if "://" in text:
        text = _USER_INFO.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
    if "=" in text:
        text = _QUERY_SECRET.sub(rf"\g<name>{MASK}", text)
    return text


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The structlog processor that applies `redact` to everything that is logged."""
    return {key: _redact_field(key, value) for key, value in event.items()}


def _redact_field(key: object, value: Any) -> Any:
    if isinstance(key, str) and _SECRET_KEYS.search(key) and value:
        return MASK
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {inner: _redact_field(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_field(None, item) for item in value]
    if isinstance(value, BaseException):
        return redact(f"{type(value).__name__}: {value}")
    return value


def log_format(wanted: str, stream: TextIO | None = None) -> Literal["json", "console"]:
    """`json` or `console`: what `wanted` says, or for `auto` the readable form when `stream` is a terminal."""
    if wanted == "auto":
        return "console" if (stream or sys.stderr).isatty() else "json"
    return "console" if wanted == "console" else "json"


def configure(level: str = "info", form: str = "json", stream: TextIO | None = None) -> None:
    """Set up logging for this process. `level` is one of `LEVELS`, `form` is `json`, `console` or `auto`."""
    # What the libraries need of a stream is there; the type that they ask for is of other streams.
    out = cast("TextIO", LogStream(stream or sys.stderr))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        redact_event,
    ]
    if log_format(form, out) == "console":
        last.append(structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=34))
    else:
        last += [structlog.processors.EventRenamer("message"), structlog.processors.JSONRenderer(sort_keys=False)]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        # One write for each line, so that the lines of several processes on one stderr do not mix.
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, LEVELS.get(level, logging.INFO)))


def get_logger(**context: Any) -> FilteringBoundLogger:
    """A logger whose every line carries `context`."""
    logger: FilteringBoundLogger = structlog.get_logger(**context)
    return logger
