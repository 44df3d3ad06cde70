"""npm's http-cache-tests against meshcache behind real Envoy; `make conformance` runs it."""
