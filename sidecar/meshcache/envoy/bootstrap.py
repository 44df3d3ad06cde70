"""Envoy's bootstrap for `meshcache up`: listener, sidecar, origin, and a private way for background refreshes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLogFilter, NotHealthCheckFilter
from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapStaticResources,
    LayeredRuntime,
    RuntimeLayer,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    DataSource,
    HeaderValue,
    HeaderValueOption,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    Node,
    TrafficDirection,
)
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions as CommonHttpProtocolOptions
from envoy_data_plane.envoy.config.listener.v3 import (
    Filter,
    FilterChain,
    Listener,
    ListenerConnectionBalanceConfig,
    ListenerConnectionBalanceConfigExactBalance,
)
from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    HeaderMatcher,
    RetryPolicy,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerCodecType,
    HttpConnectionManagerPathWithEscapedSlashesAction,
    HttpConnectionManagerServerHeaderTransformation,
    HttpConnectionManagerUpgradeConfig,
    HttpFilter,
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.google.protobuf import Struct

from meshcache.envoy import clusters, filters
from meshcache.envoy.clusters import Origin, pipe, socket_address
from meshcache.envoy.render import pack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN_LISTENER = "meshcache"
REFRESH_LISTENER = "meshcache-refresh"
INGRESS = "ingress"
"""Statistics of client traffic stand under `http.ingress.`."""
HTTP_CONNECTION_MANAGER = "envoy.filters.network.http_connection_manager"
STREAM_IDLE_TIMEOUT = 300.0
"""Seconds without a byte in either direction after which a stream is cut."""


@dataclass(frozen=True, slots=True)
class DirectResponse:
    """A route that Envoy answers by itself, for measuring."""

    path: str
    status: int
    body: str = ""


@dataclass(frozen=True, slots=True)
class BootstrapOptions:
    """What a bootstrap is made of. Times in seconds."""

    listen: tuple[str, int]
    """Address and port; port 0 lets the kernel choose (see `EnvoyProcess.listen_port`)."""
    origin: Origin
    worker_sockets: tuple[Path, ...]
    refresh_socket: Path
    admin: Path | tuple[str, int]
    """A unix socket (mode 0600), or an address and port."""
    message_timeout: float = 0.2
    """See `timeouts.message_timeout`."""
    concurrency: int = 1
    """Envoy's worker threads; to be given to the process as well."""
    cache: bool = True
    """False leaves out ext_proc and the filter: Envoy alone, to compare with."""
    wasm: Path | None = None
    """The built filter, for a hot tier in Envoy itself; None for none."""
    filters_before: tuple[HttpFilter, ...] = ()
    """Filters in front of the cache, such as RBAC: what they refuse, a hit does not answer."""
    more_before: bool = False
    """Whether others may put filters there as well, such as one that verifies tokens."""
    direct_responses: tuple[DirectResponse, ...] = ()
    origin_timeout: float = STREAM_IDLE_TIMEOUT
    """Seconds without a byte from an origin after which Envoy gives up and answers 504, or cuts its answer short."""
    refresh_clusters: Mapping[str, Origin] = field(default_factory=dict)
    """Further origins by the names of their clusters: only refreshes go there, and only those that name them."""


def build_bootstrap(options: BootstrapOptions) -> Bootstrap:
    """The whole configuration. Raises ValueError for a socket path that is too long or a missing CA bundle."""
    cluster_list = [clusters.origin_cluster(options.origin)]
    cluster_list += [clusters.origin_cluster(origin, name=name) for name, origin in options.refresh_clusters.items()]
    if options.cache:
        cluster_list.insert(0, clusters.sidecar_cluster(options.worker_sockets))
        if options.wasm is not None:
            cluster_list.append(clusters.filter_cluster(clusters.filter_socket(options.worker_sockets[0].parent)))
    admin = pipe(options.admin, 0o600) if isinstance(options.admin, Path) else socket_address(*options.admin)
    return Bootstrap(
        node=Node(id="meshcache", cluster="meshcache"),
        admin=Admin(address=admin),
        static_resources=BootstrapStaticResources(
            listeners=[_main_listener(options), _refresh_listener(options)], clusters=cluster_list
        ),
        layered_runtime=None if options.wasm is None else PIPELINED,
    )


PIPELINED = LayeredRuntime(
    layers=[RuntimeLayer(name="pipelined", static_layer=Struct().from_dict({"http": {"max_requests_per_io_cycle": 1}}))]
)
"""The filter answers within the call in which a request arrives. A connection on which two such answers have not been
written when a third request is read, Envoy takes for a flood and closes; so it has to write in between."""


def _main_listener(options: BootstrapOptions) -> Listener:
    chain = [filters.outer_strip(), *options.filters_before]
    if options.cache:
        chain += filters.cache_filters(
            options.wasm,
            message_timeout=options.message_timeout,
            tokens=options.more_before or bool(options.filters_before),
        )
    chain.append(filters.router())
    routes = [_direct(response) for response in options.direct_responses]
    manager = _connection_manager(INGRESS, chain, [*routes, _to_origin(options)])
    # Edge defaults: a client's x-forwarded-for never becomes the peer address that `trust` is judged by.
    manager.use_remote_address = True
    manager.upgrade_configs = [HttpConnectionManagerUpgradeConfig(upgrade_type="websocket")]
    # Interim responses (100, 102, 103, 104) go through to the client (RFC 9110 section 15.2), past ext_proc, which sees
    # final responses only. What a client announces by `expect: 100-continue` is then for the origin to judge.
    manager.proxy_100_continue = True
    listener = _listener(MAIN_LISTENER, socket_address(*options.listen), manager)
    listener.traffic_direction = TrafficDirection.INBOUND
    if options.concurrency > 1:
        listener.connection_balance_config = ListenerConnectionBalanceConfig(
            exact_balance=ListenerConnectionBalanceConfigExactBalance()
        )
    return listener


def _refresh_listener(options: BootstrapOptions) -> Listener:
    ways = {clusters.ORIGIN_CLUSTER: options.origin, **options.refresh_clusters}
    return refresh_listener(options.refresh_socket, {name: _to(name, origin, options) for name, origin in ways.items()})


def refresh_listener(socket: Path, ways: Mapping[str, RouteAction]) -> Listener:
    """Background refreshes enter here and go to fixed clusters only, whatever address a request named.

    `ways` leads to each cluster by its name, the first also for refreshes that name none. One that names another gets
    Envoy's own 404: the routes are chosen before the header is stripped.
    """
    default, *_ = ways.values()
    named = [Route(match=RouteMatch(prefix="/", headers=[_names(name)]), route=action) for name, action in ways.items()]
    unnamed = HeaderMatcher(name=filters.REFRESH_CLUSTER_HEADER, present_match=False)
    routes = [*named, Route(match=RouteMatch(prefix="/", headers=[unnamed]), route=default)]
    manager = _connection_manager("refresh", [filters.request_strip(), filters.router()], routes)
    # The origin's own answers cannot carry the mark: the router's filters take internal headers from them.
    mark = HeaderValueOption(header=HeaderValue(key=filters.LOCAL_REPLY_HEADER, value="1"))
    every_one = AccessLogFilter(not_health_check_filter=NotHealthCheckFilter())
    manager.local_reply_config = LocalReplyConfig(mappers=[ResponseMapper(filter=every_one, headers_to_add=[mark])])
    return _listener(REFRESH_LISTENER, pipe(socket, 0o600), manager)


def _names(cluster: str) -> HeaderMatcher:
    return HeaderMatcher(name=filters.REFRESH_CLUSTER_HEADER, string_match=StringMatcher(exact=cluster))


def _listener(name: str, address: Address, manager: HttpConnectionManager) -> Listener:
    return Listener(
        name=name,
        address=address,
        # With SO_REUSEPORT a second Envoy of the same user would share the port in silence instead of failing.
        enable_reuse_port=False,
        filter_chains=[FilterChain(filters=[Filter(name=HTTP_CONNECTION_MANAGER, typed_config=pack(manager))])],
    )


def _connection_manager(name: str, chain: Sequence[HttpFilter], routes: list[Route]) -> HttpConnectionManager:
    return HttpConnectionManager(
        stat_prefix=name,
        codec_type=HttpConnectionManagerCodecType.AUTO,
        route_config=RouteConfiguration(
            name=name, virtual_hosts=[VirtualHost(name="all", domains=["*"], routes=routes)]
        ),
        http_filters=list(chain),
        # One path for the cache key, for authorization and for the origin: dot segments are resolved before any
        # of them sees the path, and nothing else is rewritten (`//` and `%2F` may name different resources).
        normalize_path=True,
        merge_slashes=False,
        path_with_escaped_slashes_action=HttpConnectionManagerPathWithEscapedSlashesAction.KEEP_UNCHANGED,
        server_header_transformation=HttpConnectionManagerServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=False,
        max_request_headers_kb=clusters.MAX_HEADERS_KB,
        common_http_protocol_options=CommonHttpProtocolOptions(
            idle_timeout=timedelta(hours=1), max_headers_count=clusters.MAX_HEADERS_COUNT
        ),
        http_protocol_options=Http1ProtocolOptions(enable_trailers=True),
        http2_protocol_options=Http2ProtocolOptions(max_concurrent_streams=128, allow_connect=True),
        stream_idle_timeout=timedelta(seconds=STREAM_IDLE_TIMEOUT),
        request_headers_timeout=timedelta(seconds=10),
    )


def _direct(response: DirectResponse) -> Route:
    return Route(
        match=RouteMatch(path=response.path),
        direct_response=DirectResponseAction(status=response.status, body=DataSource(inline_string=response.body)),
    )


def _to_origin(options: BootstrapOptions) -> Route:
    return Route(match=RouteMatch(prefix="/"), route=_to(clusters.ORIGIN_CLUSTER, options.origin, options))


def _to(cluster: str, origin: Origin, options: BootstrapOptions) -> RouteAction:
    action = to_cluster(cluster)
    action.idle_timeout = timedelta(seconds=options.origin_timeout)
    if origin.host_header:
        action.host_rewrite_literal = origin.host_header
        action.append_x_forwarded_host = True
    return action


def to_cluster(cluster: str) -> RouteAction:
    """The way of a request to a cluster."""
    return RouteAction(
        cluster=cluster,
        # No bound on the whole answer: a model may stream for minutes. Silence is bounded by the idle timeout.
        timeout=timedelta(0),
        # Only failures in which the origin has seen nothing of the request.
        retry_policy=RetryPolicy(retry_on="connect-failure,refused-stream,reset-before-request", num_retries=1),
    )
