"""The commands and programs of tutorials and how-to guides are run as they are written, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import read_page, run_page
from support.markdown import fenced_blocks
from support.server import running_server

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "how-to").glob("*.md")])
# Pages that need more than one service have tests of their own.
OWN_TESTS = {"first-agent.md": "test_readme_tour.py", "your-agent-on-dns.md": "test_dns_tutorial.py"}


@pytest.mark.parametrize("path", [path for path in PAGES if path.name not in OWN_TESTS], ids=lambda path: path.stem)
def test_the_commands_of_a_page_work_in_their_order(path: Path, tmp_path: Path) -> None:
    page = read_page(path)
    if not page.blocks:
        assert "```sh" not in path.read_text(encoding="utf-8")
        return
    folder = tmp_path / "work"
    folder.mkdir()
    with running_server(*page.flags, data=tmp_path / "data") as server:
        run_page(page, folder, server)


def test_pages_with_tests_of_their_own_have_them() -> None:
    assert [name for name, test in OWN_TESTS.items() if name not in Path(__file__).with_name(test).read_text()] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.stem)
def test_programs_can_be_pasted_into_a_file(path: Path) -> None:
    """Also those that are not run here: they await nothing outside of a function."""
    for number, block in enumerate(fenced_blocks(path, "python")):
        compile(block, f"{path.name}[{number}]", "exec")


def test_few_blocks_are_skipped() -> None:
    pages = [read_page(path) for path in PAGES if path.name not in OWN_TESTS]
    run, skipped = sum(len(page.run) for page in pages), sum(len(page.skipped) for page in pages)
    assert run > 1.5 * skipped, f"{run} blocks are run, {skipped} are not"


def test_reasons_to_skip_a_block_name_files_that_exist() -> None:
    reasons = [block.mark[1] for path in PAGES for block in read_page(path).skipped]
    named = {name for reason in reasons for name in re.findall(r"(?:tests|examples)/[\w/.]*\w", reason)}
    assert named
    assert [name for name in sorted(named) if not (DOCS.parent / name).exists()] == []
