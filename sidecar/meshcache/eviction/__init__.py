"""Eviction orders over one base class."""
