"""The caching engine: pure judgements on messages and stored entries, and the driver that carries them out."""
