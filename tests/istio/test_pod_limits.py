"""The injected container fits its limits: what the bounds of its workers add up to, in memory and on disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from meshcache.envoy.istio import WORKERS
from meshcache.extproc.budgets import WARM_FILE_BYTES, Shares
from meshcache.extproc.keeper import MAX_SET_BYTES
from meshcache.policy.compile import compile_documents
from meshcache.policy.sources import read_files
from meshcache.tiers import link_table, object_folder, presence
from meshcache.tiers.board import Board

ISTIO = Path(__file__).resolve().parents[2] / "istio"
TEMPLATES = {"sidecar": "meshcache", "gateway": "meshcache-gateway"}
MIB = 1 << 20
UNITS = {"Ki": 1 << 10, "Mi": MIB, "Gi": 1 << 30}

IDLE_WORKER = 95 * MIB
IDLE_SUPERVISOR = 125 * MIB
"""Resident, as `tests/e2e/test_footprint.py` holds it to be, while an experiment is judged."""


def quantity(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]i)", text).groups()
    return int(number) * UNITS[unit]


def spec(overlay):
    templates = yaml.safe_load((ISTIO / "injection-values.yaml").read_text())["sidecarInjectorWebhook"]["templates"]
    text = re.sub(r"\{\{ annotation \.ObjectMeta `[^`]+` `([^`]+)` \}\}", r"\1", templates[TEMPLATES[overlay]])
    return yaml.safe_load(text)["spec"]


def config(overlay):
    documents = read_files([ISTIO / "base" / "policies", ISTIO / "overlays" / overlay / "config.yaml"])
    return compile_documents(documents, generation=0, secret=b"").config


def size_limit(overlay, name):
    (volume,) = (volume for volume in spec(overlay)["volumes"] if volume["name"] == name)
    return quantity(volume["emptyDir"]["sizeLimit"])


def maps(tmp_path):
    """The board, the two presence maps and the links of units, which all workers share."""
    Board(tmp_path / "board").close()
    links = link_table.BUCKETS * link_table._BUCKET_BYTES
    return (tmp_path / "board").stat().st_size + 2 * presence._SLOTS + links


def idle(overlay, tmp_path):
    return IDLE_SUPERVISOR + WORKERS * IDLE_WORKER + maps(tmp_path) + size_limit(overlay, "meshcache-run")


@pytest.mark.parametrize("overlay", TEMPLATES)
def test_memory_stays_below_the_limit_even_when_all_bounds_are_reached_at_once(overlay, tmp_path):
    (container,) = spec(overlay)["initContainers"]
    limit = quantity(container["resources"]["limits"]["memory"])
    shares = Shares.of(config(overlay).hot_bytes, WORKERS)
    worker = (
        shares.hot
        # While one body is put together its parts are still there, and one may take the whole share.
        + 2 * shares.copies
        # For warm and for cold: what waits; what is being written, as it was and sealed.
        + 2 * 3 * shares.queue
        # What was read, and its body taken out of it.
        + 2 * shares.opening
    )
    # A tenth is left for answers on their way out, and for holes in the heap.
    assert idle(overlay, tmp_path) + WORKERS * worker <= limit * 0.9


@pytest.mark.parametrize("overlay", TEMPLATES)
def test_memory_that_is_asked_for_covers_the_idle_sidecar_with_a_full_hot_tier(overlay, tmp_path):
    (container,) = spec(overlay)["initContainers"]
    requested = quantity(container["resources"]["requests"]["memory"])
    assert idle(overlay, tmp_path) - size_limit(overlay, "meshcache-run") + config(overlay).hot_bytes <= requested


@pytest.mark.parametrize("overlay", TEMPLATES)
def test_files_stay_below_the_volumes_limit_past_which_the_pod_is_evicted(overlay, tmp_path):
    # Between two sweeps each worker may write its part, and once more while another one sweeps.
    past = 1 + 2 * WORKERS * object_folder._SWEEP_AFTER
    # The folder is two levels deep, by a byte of the key each; every directory takes a block.
    cold = config(overlay).cold_max_bytes * past + (256 + 256 * 256) * 4096
    # A damaged warm file is replaced before it is removed; and so is the last good policy set.
    files = cold + 2 * WARM_FILE_BYTES + maps(tmp_path) + 2 * MAX_SET_BYTES
    # What is being written to cold when a worker is killed stays for a while.
    files += 2 * WORKERS * Shares.of(config(overlay).hot_bytes, WORKERS).queue
    assert files <= size_limit(overlay, "meshcache-data")


@pytest.mark.parametrize("overlay", TEMPLATES)
def test_the_template_starts_as_many_workers_as_the_sums_say(overlay):
    (container,) = spec(overlay)["initContainers"]
    assert f"--workers={WORKERS}" in container["args"]
