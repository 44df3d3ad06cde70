"""Throughput and latency of meshcache and its peers on one Envoy worker; `python -m bench` or `make bench`."""
