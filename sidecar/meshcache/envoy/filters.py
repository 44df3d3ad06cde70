"""The HTTP filters that make up the cache's place in a filter chain.

The same builders serve `meshcache up`, `meshcache envoy-config` and the Istio manifests, so that none drifts.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation as Mutation
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutationRemoveOnMatch
from envoy_data_plane.envoy.config.core.v3 import (
    AsyncDataSource,
    DataSource,
    GrpcService,
    GrpcServiceEnvoyGrpc,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.extensions.common.matching.v3 import ExtensionWithMatcher
from envoy_data_plane.envoy.extensions.filters.common.matcher.action.v3 import SkipFilter
from envoy_data_plane.envoy.extensions.filters.http.composite.v3 import (
    Composite,
    ExecuteFilterAction,
    FilterChainConfiguration,
)
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
from envoy_data_plane.envoy.extensions.filters.http.wasm.v3 import Wasm
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.matching.common_inputs.network.v3 import FilterStateInput
from envoy_data_plane.envoy.extensions.wasm.v3 import PluginConfig, VmConfig
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.google.protobuf import StringValue
from envoy_data_plane.xds.core.v3 import TypedExtensionConfig as XdsExtensionConfig
from envoy_data_plane.xds.type.matcher.v3 import (
    Matcher,
    MatcherMatcherList,
    MatcherMatcherListFieldMatcher,
    MatcherMatcherListPredicate,
    MatcherMatcherListPredicateSinglePredicate,
    MatcherMatcherTree,
    MatcherMatcherTreeMatchMap,
    MatcherOnMatch,
)
from envoy_data_plane.xds.type.matcher.v3 import StringMatcher as XdsStringMatcher

from meshcache.envoy.render import pack
from meshcache.envoy.timeouts import MAX_MESSAGE_TIMEOUT

if TYPE_CHECKING:
    from pathlib import Path

INTERNAL_PREFIX = "x-meshcache-"
"""Headers by this prefix are the cache's own: never taken from outside, never let out."""

LOCAL_REPLY_HEADER = INTERNAL_PREFIX + "local-reply"
"""On an answer to a refresh: Envoy made it, not the origin. `extproc.refresher` looks for it."""

HOP_PREFIX = INTERNAL_PREFIX + "hop-"
"""On an answer to a refresh: what the origin has sent of `HOP_FIELDS`, which Envoy replaces by its own.
`extproc.refresher` takes them for what they were."""
HOP_FIELDS = ("connection", "transfer-encoding")
"""By these is judged where an answer ends, and which of its fields are for one hop only."""

REFRESH_CLUSTER_HEADER = INTERNAL_PREFIX + "refresh-cluster"
"""On a refresh: the name of the cluster that it goes to. Only the refresh listener looks at it, and only for the names
that it was configured with. `extproc.refresher` sets it."""

SIDECAR_CLUSTER = "meshcache"
AUTHORITY = "meshcache"
"""`:authority` of calls to the sidecar. Unset, it is the cluster's name, which in Istio is no valid authority."""

WASM = "meshcache.wasm"
"""The name of the filter that answers from Envoy's own memory."""
FILTER_CLUSTER = "meshcache-filter"
"""Where it asks the sidecar for its plan, and tells its numbers."""
PLUGIN_CONFIGURATION = {"cluster": FILTER_CLUSTER}
"""What the filter is configured with everywhere; all that policies decide it hears from the sidecar."""
VM = "meshcache"
"""One for all workers: by it they find what they share."""

SKIP_STATE = "wasm.meshcache.skip"
"""Filter state that the filter sets to `1` on requests that ext_proc is to be spared: those that can never be cached,
and those that the filter has answered, whose answers come past ext_proc.

Envoy puts what a module sets by `proxy_set_property` under `wasm.`: nothing that a client sends gets there."""

ASK_STATE = "wasm.meshcache.ask"
"""Filter state in which the filter leaves what it asks the sidecar."""
ASK_HEADER = INTERNAL_PREFIX + "ask"
"""The header in which the sidecar hears of it."""

BEHIND_WASM = "meshcache.behind-wasm"
EXT_PROC = "envoy.filters.http.ext_proc"
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


_DROP = [Mutation(remove_on_match=HeaderMutationRemoveOnMatch(key_matcher=StringMatcher(prefix=INTERNAL_PREFIX)))]


def _strip_internal(name: str, *, responses: list[Mutation] = _DROP) -> HttpFilter:
    mutations = Mutations(request_mutations=_DROP, request_trailers_mutations=_DROP, response_mutations=responses)
    if responses is _DROP:
        mutations.response_trailers_mutations = _DROP
    return HttpFilter(name=name, typed_config=pack(HeaderMutation(mutations=mutations)))


def outer_strip() -> HttpFilter:
    """Before every other filter: removes internal headers from what clients send and from what goes out."""
    return _strip_internal("meshcache.strip.client")


def request_strip() -> HttpFilter:
    """As `outer_strip`, for the refresh listener, whose answers go to the sidecar and carry `LOCAL_REPLY_HEADER`.

    They also say what was in `HOP_FIELDS`.
    """
    told: list[Mutation] = []
    for name in HOP_FIELDS:
        field = HeaderValue(key=HOP_PREFIX + name, value=f"%RESP({name})%")
        told += [Mutation(remove=field.key), Mutation(append=HeaderValueOption(header=field))]
    return _strip_internal("meshcache.strip.refresh", responses=told)


def ext_proc(*, message_timeout: float) -> HttpFilter:
    """The filter that asks the sidecar, and waits `message_timeout` seconds for each of its replies.

    For a request that waits for another's answer it waits longer, when the sidecar says so.
    Only request headers are sent by default. For what it wants to see of the response the sidecar asks per
    request by `mode_override`, so that a hit and a bypass cost one message. `grpc_service.timeout` and a gRPC
    retry policy are left out on purpose: the first does not bound the wait for a message, the second can add up
    to a second to a request when the sidecar is gone.
    """
    return HttpFilter(
        name=EXT_PROC,
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


def wasm(module: Path, *, tokens: bool = True) -> HttpFilter:
    """The hot tier in Envoy: the filter that the file `module` holds. It stands right before ext_proc.

    `tokens` tells whether a filter in front may verify tokens: if none does, a hit need not ask for them.

    When it traps, that request passes and so do all others: the worker does without it until Envoy gets another
    configuration. Only the older field `fail_open` does so, of which Envoy 1.40 says that it is deprecated: by
    `failure_policy: FAIL_OPEN` the request in which it traps gets a 503, and by FAIL_RELOAD all of the next second too.
    """
    vm = VmConfig(
        vm_id=VM,
        runtime="envoy.wasm.runtime.v8",
        code=AsyncDataSource(local=DataSource(filename=str(module))),
    )
    configuration = {**PLUGIN_CONFIGURATION, "tokens": tokens}
    plugin = PluginConfig(
        name="meshcache",
        root_id="meshcache",
        vm_config=vm,
        configuration=pack(StringValue(value=json.dumps(configuration))),
        fail_open=True,
    )
    return HttpFilter(name=WASM, typed_config=pack(Wasm(config=plugin)))


def ask() -> HttpFilter:
    """Between the filter and ext_proc: makes a header of what the filter asks the sidecar.

    If Wasm set it by itself, Envoy would choose the route anew (decision 26). Where nothing is asked there is no such
    header, whoever has sent one.
    """
    asked = HeaderValue(key=ASK_HEADER, value=f"%FILTER_STATE({ASK_STATE}:PLAIN)%")
    overwrite = HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    mutations = [
        Mutation(remove=ASK_HEADER),
        Mutation(append=HeaderValueOption(header=asked, append_action=overwrite)),
    ]
    return HttpFilter(
        name="meshcache.ask", typed_config=pack(HeaderMutation(mutations=Mutations(request_mutations=mutations)))
    )


def skippable(ext_proc: HttpFilter) -> HttpFilter:
    """ext_proc such that requests pass it by which the filter in front of it has marked (`SKIP_STATE`)."""
    skip = MatcherOnMatch(action=XdsExtensionConfig(name="skip", typed_config=pack(SkipFilter())))
    marked = XdsExtensionConfig(name="marked", typed_config=pack(FilterStateInput(key=SKIP_STATE)))
    tree = MatcherMatcherTree(input=marked, exact_match_map=MatcherMatcherTreeMatchMap(map={"1": skip}))
    inner = TypedExtensionConfig(name=ext_proc.name, typed_config=ext_proc.typed_config)
    wrapped = ExtensionWithMatcher(xds_matcher=Matcher(matcher_tree=tree), extension_config=inner)
    return HttpFilter(name=ext_proc.name, typed_config=pack(wrapped))


def behind_wasm(*chain: HttpFilter) -> HttpFilter:
    """The filters of `chain` as one, made for a request only when it gets there without the mark (`SKIP_STATE`).

    An ext_proc that stands in the chain by itself costs every request some microseconds, also those that the filter in
    front of it answers (seen with 1.40). Such answers come past here as well, and are marked lest it be made for them.
    """
    marked = MatcherMatcherListPredicateSinglePredicate(
        input=XdsExtensionConfig(name="marked", typed_config=pack(FilterStateInput(key=SKIP_STATE))),
        value_match=XdsStringMatcher(exact="1"),
    )
    unmarked = MatcherMatcherListPredicate(not_matcher=MatcherMatcherListPredicate(single_predicate=marked))
    inner = [TypedExtensionConfig(name=each.name, typed_config=each.typed_config) for each in chain]
    action = ExecuteFilterAction(filter_chain=FilterChainConfiguration(typed_config=inner))
    run = MatcherOnMatch(action=XdsExtensionConfig(name="run", typed_config=pack(action)))
    listed = MatcherMatcherList(matchers=[MatcherMatcherListFieldMatcher(predicate=unmarked, on_match=run)])
    return HttpFilter(name=BEHIND_WASM, typed_config=pack(Composite(matcher=Matcher(matcher_list=listed))))


def cache_filters(module: Path | None, *, message_timeout: float, tokens: bool = True) -> list[HttpFilter]:
    """The cache's filters in their order: ext_proc, and where there is a `module` the filter before it (see `wasm`)."""
    asking = ext_proc(message_timeout=message_timeout)
    if module is None:
        return [asking]
    return [wasm(module, tokens=tokens), behind_wasm(ask(), asking)]


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
