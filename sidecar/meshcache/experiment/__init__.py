"""Experiments on policies: assignment of requests to arms."""
