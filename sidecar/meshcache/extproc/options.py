"""Names of the ext_proc service, and what may speak it."""

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
