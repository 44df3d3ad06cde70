"""No arm lives off another's capacity. The long form is `make proofs PARTS=interference`."""

from __future__ import annotations

import pytest

from proofs.interference import ALLOWED, SETTINGS, compare


@pytest.mark.parametrize("setting", SETTINGS[:2], ids=lambda setting: setting.name)
def test_an_arm_hits_as_often_as_it_does_alone_with_its_share(setting) -> None:
    found = compare(setting.share(0.25), 3000, 2000)
    assert all(arm["evictedAlone"] > 30 for arm in found.values())
    for arm in found.values():
        assert arm["mixed"] == pytest.approx(arm["alone"], abs=ALLOWED)
