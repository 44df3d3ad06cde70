"""Envoy's configuration, built with envoy-data-plane, and a supervised Envoy process."""
