"""The filter in a double of Envoy, with sidecar and origin as tests script them, and a model of what it may answer."""

from hot_filter.model import Model, Stored
from hot_filter.sidecar import Feed, Manner
from hot_filter.world import Exchange, World

__all__ = ["Exchange", "Feed", "Manner", "Model", "Stored", "World"]
