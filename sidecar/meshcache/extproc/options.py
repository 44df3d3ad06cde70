"""Name and gRPC options of the ext_proc service, shared by `serve` and the bench's echo server: measured alike."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD: Final = "Process"


class Grpc(StrEnum):
    """Which gRPC server speaks to Envoy."""

    NATIVE = "native"
    """`meshcache.rpc`."""
    GRPCIO = "grpcio"
    """gRPC's own library."""


SOCKET_MODE: Final = 0o660
"""Of the sockets on which Envoy speaks to the sidecar: it may run as another user of the same group."""

MAX_MESSAGE_BYTES: Final = 64 << 20
"""Largest message taken from Envoy, bytes. The library's default of 4 MiB is below what a buffered request may hold."""

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Replies carry whole bodies; the tiers' object sizes bound them, not the transport.
    ("grpc.max_send_message_length", -1),
    # One process per socket: a second one that binds the same path is a mistake, not a helper.
    ("grpc.so_reuseport", 0),
)
"""Options for `grpc.aio.server`.

`grpc.max_concurrent_streams` is left alone on purpose: Envoy opens a stream per request, and a low bound fails them.
"""
