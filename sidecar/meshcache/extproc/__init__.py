"""The gRPC edge: Envoy's ext_proc protocol to plain types and back."""
