"""The clusters: the sidecar's workers on their unix sockets, and the origin."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterDnsLookupFamily,
    ClusterLbPolicy,
    OutlierDetection,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    DataSource,
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    Pipe,
    SocketAddress,
    TransportSocket,
)
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions as CommonHttpProtocolOptions
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsAutoHttpConfig,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.envoy.type.v3 import Percent

from meshcache.envoy.filters import AUTHORITY, FILTER_CLUSTER, SIDECAR_CLUSTER
from meshcache.envoy.render import pack
from meshcache.process import MAX_UNIX_PATH_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ORIGIN_CLUSTER = "origin"
MAX_HEADERS_KB = 96
MAX_HEADERS_COUNT = 200

_UNBOUNDED = 1_000_000
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True, slots=True)
class Origin:
    """The one upstream that requests go to."""

    host: str
    """Name or IP address, without brackets."""
    port: int
    tls: bool = False
    sni: str = ""
    """Server name for TLS and the name its certificate must hold; empty: `host`."""
    ca_file: Path | None = None
    """PEM bundle of trusted authorities; None: the system's."""
    host_header: str = ""
    """What `host` is rewritten to on the way to the origin; empty: it passes unchanged."""


def pipe(path: Path, mode: int = 0) -> Address:
    """The address of a unix socket. Raises ValueError when `path` is longer than the kernel takes."""
    text = str(path)
    if len(text.encode()) > MAX_UNIX_PATH_BYTES:
        msg = f"socket path is longer than {MAX_UNIX_PATH_BYTES} bytes: {text}"
        raise ValueError(msg)
    return Address(pipe=Pipe(path=text, mode=mode))


def socket_address(host: str, port: int) -> Address:
    """A TCP address."""
    return Address(socket_address=SocketAddress(address=host, port_value=port))


def _assignment(name: str, addresses: Sequence[Address]) -> ClusterLoadAssignment:
    endpoints = [LbEndpoint(endpoint=Endpoint(address=address)) for address in addresses]
    return ClusterLoadAssignment(cluster_name=name, endpoints=[LocalityLbEndpoints(lb_endpoints=endpoints)])


def _circuit_breakers() -> CircuitBreakers:
    # Envoy's default of 1024 requests would turn a burst into bypasses ("overflow"), or 503s at the origin.
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=_UNBOUNDED,
                max_pending_requests=_UNBOUNDED,
                max_requests=_UNBOUNDED,
                max_retries=_UNBOUNDED,
            )
        ]
    )


def sidecar_cluster(worker_sockets: Sequence[Path]) -> Cluster:
    """The workers, one endpoint per socket.

    A dead or frozen worker is taken out by the gRPC health check (a frozen one after a second and a half at most)
    and put back within about half a second after it answers again. With no worker left the panic threshold of 0
    makes a call fail at once, and ext_proc's `failure_mode_allow` sends the request on to the origin.

    No HTTP/2 keepalive pings: a frozen worker's connections are closed when its health check fails.
    """
    http2 = Http2ProtocolOptions(max_concurrent_streams=65_536)
    return Cluster(
        name=SIDECAR_CLUSTER,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(milliseconds=250),
        lb_policy=ClusterLbPolicy.ROUND_ROBIN,
        load_assignment=_assignment(SIDECAR_CLUSTER, [pipe(path) for path in worker_sockets]),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: pack(
                HttpProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=http2)
                )
            )
        },
        circuit_breakers=_circuit_breakers(),
        common_lb_config=ClusterCommonLbConfig(
            healthy_panic_threshold=Percent(value=0.0),
            # By default a second may pass before a change of health reaches the load balancer.
            update_merge_window=timedelta(0),
        ),
        health_checks=[
            HealthCheck(
                timeout=timedelta(seconds=1),
                interval=timedelta(milliseconds=500),
                # Without it a cluster that has had no traffic yet is checked once a minute only.
                no_traffic_interval=timedelta(milliseconds=500),
                unhealthy_interval=timedelta(milliseconds=250),
                unhealthy_threshold=1,
                healthy_threshold=1,
                grpc_health_check=HealthCheckGrpcHealthCheck(authority=AUTHORITY),
            )
        ],
        close_connections_on_host_health_failure=True,
        # Only what shows that a worker is gone counts (connections refused or cut): were gRPC errors to count, a
        # client who can provoke them could take the cache out.
        outlier_detection=OutlierDetection(
            split_external_local_origin_errors=True,
            consecutive_local_origin_failure=3,
            enforcing_consecutive_local_origin_failure=100,
            enforcing_consecutive_5xx=0,
            enforcing_consecutive_gateway_failure=0,
            enforcing_success_rate=0,
            enforcing_local_origin_success_rate=0,
            # Short, as a worker that comes back early costs a few quick failures and one kept out costs hits.
            interval=timedelta(milliseconds=250),
            base_ejection_time=timedelta(milliseconds=250),
            max_ejection_time=timedelta(seconds=1),
            max_ejection_percent=100,
        ),
    )


def filter_socket(folder: Path) -> Path:
    """The socket for the filter's calls, in the folder of the workers' sockets."""
    return folder / "filter.sock"


def filter_cluster(socket: Path) -> Cluster:
    """The sidecar's supervisor as the filter calls it, by HTTP/1.1: `socket` is `filter.sock` beside the workers'.

    Its calls are few, and the filter minds their failures itself.
    """
    http = HttpProtocolOptions(
        explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions())
    )
    return Cluster(
        name=FILTER_CLUSTER,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(milliseconds=250),
        load_assignment=_assignment(FILTER_CLUSTER, [pipe(socket)]),
        typed_extension_protocol_options={_HTTP_OPTIONS: pack(http)},
        circuit_breakers=_circuit_breakers(),
    )


def _origin_tls(origin: Origin) -> TransportSocket:
    name = origin.sni or origin.host
    is_address = _is_ip(name)
    san = SubjectAltNameMatcherSanType.IP_ADDRESS if is_address else SubjectAltNameMatcherSanType.DNS
    ca_file = str(origin.ca_file or system_ca_file())
    context = UpstreamTlsContext(
        # RFC 6066 section 3 forbids literal addresses in SNI.
        sni="" if is_address else name,
        common_tls_context=CommonTlsContext(
            validation_context=CertificateValidationContext(
                trusted_ca=DataSource(filename=ca_file),
                match_typed_subject_alt_names=[
                    SubjectAltNameMatcher(san_type=san, matcher=StringMatcher(exact=name)),
                ],
            )
        ),
    )
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(context))


def system_ca_file() -> str:
    """The system's bundle of trusted authorities. Raises ValueError when OpenSSL knows of none."""
    path = ssl.get_default_verify_paths().cafile
    if not path:
        msg = "no bundle of trusted certificate authorities found; name one"
        raise ValueError(msg)
    return path


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def origin_cluster(origin: Origin, *, name: str = ORIGIN_CLUSTER, connect_timeout: float = 5.0) -> Cluster:
    """The origin, as `name`: HTTP/1.1, or over TLS what ALPN agrees on; `connect_timeout` in seconds."""
    http1 = Http1ProtocolOptions(enable_trailers=True)
    http = HttpProtocolOptions(
        common_http_protocol_options=CommonHttpProtocolOptions(
            # Shorter than the five seconds after which common servers (Node, uvicorn) close an idle connection:
            # whoever closes first decides whether a request meets a closed one.
            idle_timeout=timedelta(seconds=4),
            max_response_headers_kb=MAX_HEADERS_KB,
            max_headers_count=MAX_HEADERS_COUNT,
        )
    )
    cluster = Cluster(
        name=name,
        connect_timeout=timedelta(seconds=connect_timeout),
        lb_policy=ClusterLbPolicy.ROUND_ROBIN,
        load_assignment=_assignment(name, [socket_address(origin.host, origin.port)]),
        circuit_breakers=_circuit_breakers(),
    )
    if _is_ip(origin.host):
        cluster.type = ClusterDiscoveryType.STATIC
    else:
        cluster.type = ClusterDiscoveryType.STRICT_DNS
        cluster.dns_lookup_family = ClusterDnsLookupFamily.V4_PREFERRED
    if origin.tls:
        http.auto_config = HttpProtocolOptionsAutoHttpConfig(
            http_protocol_options=http1, http2_protocol_options=Http2ProtocolOptions()
        )
        cluster.transport_socket = _origin_tls(origin)
    else:
        http.explicit_http_config = HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=http1)
    cluster.typed_extension_protocol_options = {_HTTP_OPTIONS: pack(http)}
    return cluster
