"""Eviction orders: which entry of a bounded pool is given up first. Pure: no I/O, no clock."""
