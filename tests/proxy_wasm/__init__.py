"""An Envoy of Python for proxy-wasm modules (ABI 0.2.1), by `wasmtime`: for tests that need to decide everything.

It does what Envoy does around a module, after proxy-wasm-cpp-host and Envoy's own `source/extensions/common/wasm`:
statuses of host calls, memory by `proxy_on_memory_allocate`, one VM for each worker, data and metrics that all VMs
share, calls to clusters, streams of requests with local replies. Time stands still unless a test moves it.
"""

from proxy_wasm.abi import Pairs
from proxy_wasm.envoy import Call, Envoy, Reply
from proxy_wasm.streams import Stream
from proxy_wasm.worker import Worker

__all__ = ["Call", "Envoy", "Pairs", "Reply", "Stream", "Worker"]
