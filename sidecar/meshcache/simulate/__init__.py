"""Replaying recorded traffic against policies: the engine itself, with tiers in memory and a clock that is set."""
