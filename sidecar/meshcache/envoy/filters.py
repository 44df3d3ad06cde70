"""The HTTP filters that make up the cache's place in a filter chain.

The same builders serve `meshcache up`, `meshcache envoy-config` and the Istio manifests, so that none drifts.
"""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation as Mutation
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutationRemoveOnMatch
from envoy_data_plane.envoy.config.core.v3 import GrpcService, GrpcServiceEnvoyGrpc
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExternalProcessorRouteCacheAction,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import HeaderMutation, Mutations
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.http.upstream_codec.v3 import UpstreamCodec
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from meshcache.envoy.render import pack
from meshcache.envoy.timeouts import MAX_MESSAGE_TIMEOUT

INTERNAL_PREFIX = "x-meshcache-"
"""Headers by this prefix are the cache's own: never taken from outside, never let out."""

LOCAL_REPLY_HEADER = INTERNAL_PREFIX + "local-reply"
"""On an answer to a refresh: Envoy made it, not the origin. `extproc.refresher` looks for it."""

REFRESH_CLUSTER_HEADER = INTERNAL_PREFIX + "refresh-cluster"
"""On a refresh: the name of the cluster that it goes to. Only the refresh listener looks at it, and only for the names
that it was configured with. `extproc.refresher` sets it."""

SIDECAR_CLUSTER = "meshcache"
AUTHORITY = "meshcache"
"""`:authority` of calls to the sidecar. Unset, it is the cluster's name, which in Istio is no valid authority."""

ROUTER = "envoy.filters.http.router"
REQUEST_ATTRIBUTES = (
    "source.address",
    "connection.mtls",
    "connection.uri_san_peer_certificate",
    "connection.dns_san_peer_certificate",
    "connection.subject_peer_certificate",
    "xds.cluster_name",
)
JWT_METADATA = "envoy.filters.http.jwt_authn"
"""Where Envoy's JWT filter leaves what it has verified, when its provider has `payload_in_metadata`. Only filters of
this Envoy write there, never a client."""

RESPONSE_ATTRIBUTES = ("response.code_details",)


def _strip_internal(name: str, *, responses: bool = True) -> HttpFilter:
    drop = [Mutation(remove_on_match=HeaderMutationRemoveOnMatch(key_matcher=StringMatcher(prefix=INTERNAL_PREFIX)))]
    mutations = Mutations(request_mutations=drop, request_trailers_mutations=drop)
    if responses:
        mutations.response_mutations = mutations.response_trailers_mutations = drop
    return HttpFilter(name=name, typed_config=pack(HeaderMutation(mutations=mutations)))


def outer_strip() -> HttpFilter:
    """Before every other filter: removes internal headers from what clients send and from what goes out."""
    return _strip_internal("meshcache.strip.client")


def request_strip() -> HttpFilter:
    """As `outer_strip`, for the refresh listener, whose answers go to the sidecar and carry `LOCAL_REPLY_HEADER`."""
    return _strip_internal("meshcache.strip.refresh", responses=False)


def ext_proc(*, message_timeout: float) -> HttpFilter:
    """The filter that asks the sidecar, and waits `message_timeout` seconds for each of its replies.

    For a request that waits for another's answer it waits longer, when the sidecar says so.
    Only request headers are sent by default. For what it wants to see of the response the sidecar asks per
    request by `mode_override`, so that a hit and a bypass cost one message. `grpc_service.timeout` and a gRPC
    retry policy are left out on purpose: the first does not bound the wait for a message, the second can add up
    to a second to a request when the sidecar is gone.
    """
    return HttpFilter(
        name="envoy.filters.http.ext_proc",
        typed_config=pack(
            ExternalProcessor(
                grpc_service=GrpcService(
                    envoy_grpc=GrpcServiceEnvoyGrpc(
                        cluster_name=SIDECAR_CLUSTER, authority=AUTHORITY, skip_envoy_headers=True
                    )
                ),
                failure_mode_allow=True,
                processing_mode=ProcessingMode(
                    request_header_mode=ProcessingModeHeaderSendMode.SEND,
                    response_header_mode=ProcessingModeHeaderSendMode.SKIP,
                    request_body_mode=ProcessingModeBodySendMode.NONE,
                    response_body_mode=ProcessingModeBodySendMode.NONE,
                    request_trailer_mode=ProcessingModeHeaderSendMode.SKIP,
                    response_trailer_mode=ProcessingModeHeaderSendMode.SKIP,
                ),
                allow_mode_override=True,
                message_timeout=timedelta(seconds=message_timeout),
                max_message_timeout=timedelta(seconds=MAX_MESSAGE_TIMEOUT),
                request_attributes=list(REQUEST_ATTRIBUTES),
                response_attributes=list(RESPONSE_ATTRIBUTES),
                metadata_options=MetadataOptions(
                    forwarding_namespaces=MetadataOptionsMetadataNamespaces(untyped=[JWT_METADATA])
                ),
                # A reply never moves a request to another route than the one that authorization has judged.
                route_cache_action=ExternalProcessorRouteCacheAction.RETAIN,
            )
        ),
    )


def upstream_filters() -> list[HttpFilter]:
    """The router's filters towards the origin: internal headers are removed from what goes there and comes back.

    A filter between ext_proc and the router would not do: the sidecar's immediate replies run through it too, and
    it would take their internal headers away from the filters in front.
    """
    return [
        _strip_internal("meshcache.strip.origin"),
        HttpFilter(name="envoy.filters.http.upstream_codec", typed_config=pack(UpstreamCodec())),
    ]


def router() -> HttpFilter:
    """The terminal filter; it adds no `x-envoy-*` header, so that the origin's answer passes as it is."""
    return HttpFilter(
        name=ROUTER,
        typed_config=pack(Router(suppress_envoy_headers=True, upstream_http_filters=upstream_filters())),
    )
