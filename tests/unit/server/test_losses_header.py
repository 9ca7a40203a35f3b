"""The Waypost-Losses header is ASCII JSON for any member names."""

from __future__ import annotations

import json

import pytest

from waypost.model.record import MappingLoss
from waypost.server.renderer import losses_header


@pytest.mark.parametrize("name", ["plain", "\u00e9t\u00e9", "\u5929\u6c14", "\U0001f600", 'a"b\\c'])
def test_any_path_is_read_again_as_it_was(name: str) -> None:
    losses = (MappingLoss(f"$.{name}", "no place for it"), MappingLoss("$.other", "cut"))
    written = losses_header(losses)
    assert written.isascii()
    assert json.loads(written) == [{"path": loss.path, "reason": loss.reason} for loss in losses]


def test_a_long_losses_header_is_truncated_after_a_whole_item() -> None:
    written = losses_header(tuple(MappingLoss("$." + number * "\u00e9", "cut") for number in range(300, 309)))
    assert 0 < len(json.loads(written)) < 9
    assert len(written) <= 4096
