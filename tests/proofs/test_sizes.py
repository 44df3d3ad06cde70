"""How much data one look at the end takes."""

from __future__ import annotations

import pytest

from proofs.sizes import fixed_for_means, fixed_for_shares


def test_the_textbook_size_of_two_shares() -> None:
    # (1.95996 + 1.64485)^2 (0.82 0.18 + 0.91 0.09) / 0.09^2
    assert fixed_for_shares(0.82, 0.91) == 369
    assert fixed_for_shares(0.82, 0.91, power=0.8) == 223
    assert fixed_for_shares(0.91, 0.82) == 369


def test_the_textbook_size_of_two_means() -> None:
    assert fixed_for_means(0.5, 1.0, power=0.8) == 63


def test_no_difference_has_no_size() -> None:
    with pytest.raises(ValueError, match="difference"):
        fixed_for_means(0.0, 1.0)
    assert fixed_for_means(1.0, 0.0) == 0
