"""Storage tiers: process memory, a shared local file or Redis, a folder; and the stack that joins them."""
