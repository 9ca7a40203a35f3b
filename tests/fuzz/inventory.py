"""The fuzz targets and their kept inputs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
TARGETS = sorted(path.stem for path in (Path(__file__).resolve().parent / "targets").glob("*.py"))
