"""Merkle proofs against the vectors of the transparency-dev project."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from support.vectors import load_shared_vectors
from waypost.trust.transparency_log import verify_consistency, verify_inclusion


def _cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["_path"]) for case in load_shared_vectors(f"merkle/{name}")]


def _hashes(values: list[str] | None) -> list[bytes]:
    return [base64.b64decode(value) for value in values or []]


@pytest.mark.parametrize("case", _cases("inclusion"))
def test_inclusion_is_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    leaf, root = _hashes([case["leafHash"], case["root"]])
    accepted = verify_inclusion(leaf, case["leafIdx"], case["treeSize"], _hashes(case["proof"]), root)
    assert accepted is not case["wantErr"]


@pytest.mark.parametrize("case", _cases("consistency"))
def test_consistency_is_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    first, second = _hashes([case["root1"], case["root2"]])
    accepted = verify_consistency(case["size1"], case["size2"], _hashes(case["proof"]), first, second)
    assert accepted is not case["wantErr"]


def test_all_vectors_are_there() -> None:
    assert len(_cases("inclusion")) + len(_cases("consistency")) == 196
