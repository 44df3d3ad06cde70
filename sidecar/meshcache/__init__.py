"""meshcache: a cache policy engine for Envoy and Istio."""

__version__ = "0.1.0"
