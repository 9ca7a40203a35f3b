"""Runs one fuzz target with atheris (libFuzzer). `scripts/fuzz` is its command; this module is one run of one target.

    python -m fuzz.run TARGET FOLDER [OPTION OF LIBFUZZER…]

New inputs go to FOLDER, and so does an input that breaks the target. The kept corpus is read, never written.
"""

from __future__ import annotations

import importlib
import resource
import sys
from pathlib import Path

import atheris

from fuzz.inventory import CORPUS

# libFuzzer has a limit of its own, but compares it with the peak of the process, and Linux hands the peak of the parent down:
# a run that a large test process starts would fail at once.
MEMORY_BYTES = 2 << 30


def main() -> None:
    name, folder, *options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    options.append("-rss_limit_mb=0")
    with atheris.instrument_imports(include=["waypost"], enable_loader_override=False):
        target = importlib.import_module(f"fuzz.targets.{name}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    corpus = [folder, str(CORPUS / name)] if (CORPUS / name).exists() else [folder]
    atheris.Setup([sys.argv[0], *corpus, f"-artifact_prefix={folder}/broken-", *options], target.fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
