"""The requirements are data, and the data is true: statuses, citations and the README's matrix agree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import requirements
from support.citations import Scan, scan_source, scan_tests

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SPECIFICATIONS = requirements.read_specifications()
ROWS = {row.id: row for spec in SPECIFICATIONS for row in spec.requirements}


@pytest.fixture(scope="module")
def scan() -> Scan:
    return scan_tests(sorted(TESTS.rglob("test_*.py")), ROOT)


def test_every_id_is_listed_once() -> None:
    count = Counter(row.id for spec in SPECIFICATIONS for row in spec.requirements)
    assert [name for name, times in count.items() if times > 1] == []


def test_every_row_uses_known_values_and_has_a_text() -> None:
    odd = [
        row.id
        for row in ROWS.values()
        if row.level not in requirements.LEVELS or row.status not in requirements.STATUSES
    ]
    silent = [row.id for row in ROWS.values() if not row.text.strip() or not row.issue.strip()]
    assert (odd, silent) == ([], [])


def test_a_departure_gives_its_reason() -> None:
    assert [row.id for row in ROWS.values() if row.status == "departed" and not row.reason.strip()] == []


def test_every_done_requirement_is_cited_by_a_test(scan: Scan) -> None:
    cited = {citation.id for citation in scan.citations}
    assert [row.id for row in ROWS.values() if row.status == "done" and row.id not in cited] == []


def test_every_cited_id_exists(scan: Scan) -> None:
    assert [citation for citation in scan.citations if citation.id not in ROWS] == []


def test_a_cited_requirement_is_not_still_planned(scan: Scan) -> None:
    planned = {row.id for row in ROWS.values() if row.status == "planned"}
    late = sorted({citation.id for citation in scan.citations} & planned)
    assert late == [], f"their tests are here: scripts/requirements.py mark done {' '.join(late)}"


def test_every_conformance_test_cites_a_requirement() -> None:
    folders = [TESTS / "conformance" / spec.stem for spec in SPECIFICATIONS]
    paths = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    assert scan_tests(paths, ROOT).unmarked == ()


def test_every_citation_can_be_read_without_running_it(scan: Scan) -> None:
    assert scan.unreadable == ()


def test_the_matrix_in_the_readme_is_the_one_the_data_gives() -> None:
    readme = requirements.README.read_text(encoding="utf-8")
    assert readme == requirements.with_matrix(readme, requirements.render_matrix(SPECIFICATIONS))


def test_the_scan_sees_each_way_to_cite_and_each_omission() -> None:
    source = (
        "@pytest.mark.req('A-1', 'A-2')\n"
        "def test_one(): ...\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.req('A-3'))])\n"
        "def test_two(x): ...\n"
        "@pytest.mark.req('A-4')\n"
        "class TestThree:\n"
        "    def test_inside(self): ...\n"
        "async def test_four(): ...\n"
        "@pytest.mark.req(NAME)\n"
        "def test_five(): ...\n"
    )
    found = scan_source(source, "t.py")
    assert sorted(citation.id for citation in found.citations) == ["A-1", "A-2", "A-3", "A-4"]
    assert found.unmarked == ("t.py:8 test_four",)
    assert found.unreadable == ("t.py:9",)
    assert scan_source("pytestmark = pytest.mark.req('A-1')\ndef test_one(): ...", "t.py").unmarked == ()


def test_marking_changes_one_status_and_names_unknown_ids(tmp_path: Path) -> None:
    rows = "".join(
        f'\n[[requirement]]\nid = "A-{n}"\nlevel = "MUST"\ntext = "t"\nstatus = "planned"\nissue = "i"\n'
        for n in (1, 11)
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "requirements.toml").write_text(f'title = "A"\n{rows}')
    assert requirements.mark("done", ["A-1", "B-1"], tmp_path) == ["B-1"]
    (spec,) = requirements.read_specifications(tmp_path)
    assert [(row.id, row.status) for row in spec.requirements] == [("A-1", "done"), ("A-11", "planned")]
