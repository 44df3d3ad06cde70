"""Asking the origin apart from the client's own request: behind his back, or while he waits."""
