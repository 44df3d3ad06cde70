"""gRPC over HTTP/2, the server's side of it, for a peer on a unix socket: what Envoy speaks to a worker."""
