"""The admin socket and the metrics port."""
