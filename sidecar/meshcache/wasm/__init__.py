"""The hot tier inside Envoy, as the sidecar knows it: its plan, the marks on requests and answers, its counts."""
