"""The built filter, and worlds around it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from filter_module import built_filter
from hot_filter import World
from policy_texts import compiled, policies


@pytest.fixture(scope="session")
def filter_module() -> Path:
    """The module, built from the sources as they are; or another, for trials."""
    given = os.environ.get("FILTER_MODULE")
    return Path(given) if given else built_filter()


@pytest.fixture
def make_world(filter_module: Path) -> Callable[..., World]:
    """Makes worlds without workers, under policies given as text."""

    def make(text: str | None = None) -> World:
        return World(filter_module, compiled(policies() if text is None else text))

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One worker that has the plan."""
    world = make_world()
    world.add_worker()
    return world
