"""The supply chain: floors against known flaws, licences, notices and the bill of materials."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import audit_dependencies
import lockfile
import notices
import sbom

FLOORS = lockfile.read_floors()


def _lowest(requirement: Requirement) -> Version:
    return max(Version(part.version) for part in requirement.specifier if part.operator in (">=", "=="))


def test_no_pinned_version_is_below_its_floor() -> None:
    assert audit_dependencies.find_pins_below_floor() == []


def test_pyproject_allows_no_version_below_its_floor() -> None:
    project = lockfile.read_project()
    lines = project["dependencies"] + [
        line for extra in lockfile.USER_EXTRAS for line in project["optional-dependencies"][extra]
    ]
    requirements = {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}
    below = {
        name: str(requirements[name])
        for name, floor in FLOORS.items()
        if name in requirements and _lowest(requirements[name]) < Version(floor["version"])
    }
    assert below == {}


def test_every_floor_is_for_a_pinned_package_and_has_a_reason() -> None:
    pinned = {pin.name for name in audit_dependencies.SETS for pin in lockfile.read_pins(name)}
    assert FLOORS.keys() - pinned == set()
    assert [name for name, floor in FLOORS.items() if not floor["reason"].endswith(".")] == []
    ids = [advisory for floor in FLOORS.values() for advisory in floor["advisories"]]
    assert [advisory for advisory in ids if not re.fullmatch(r"CVE-\d{4}-\d{4,}|GHSA(-[a-z0-9]{4}){3}", advisory)] == []


def test_a_version_below_its_floor_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in audit_dependencies.SETS:
        text = (lockfile.REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
        (tmp_path / f"{name}.txt").write_text(re.sub(r"(?m)^h11==[^ ]+", "h11==0.14.0", text), encoding="utf-8")
    (tmp_path / "floors.toml").write_bytes((lockfile.REQUIREMENTS / "floors.toml").read_bytes())
    monkeypatch.setattr(lockfile, "REQUIREMENTS", tmp_path)
    (found,) = audit_dependencies.find_pins_below_floor()
    assert found.startswith("h11 0.14.0 is below 0.16.0: ")
    assert "CVE-2025-43859" in found


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ({"name": "h11", "version": "0.16.0", "vulns": []}, 0),
        ({"name": "h11", "version": "0.14.0", "vulns": [{"id": "CVE-2025-43859"}]}, 1),
        ({"name": "h11", "skip_reason": "not found"}, audit_dependencies.NO_DATA),
    ],
    ids=["clean", "vulnerable", "not looked up"],
)
def test_an_audit_without_data_is_not_a_clean_one(tmp_path: Path, package: dict[str, Any], code: int) -> None:
    """The program stands in for pip-audit, which ends with 0 also if its database knew none of the packages."""
    script = tmp_path / "pip-audit"
    script.write_text(f"print({json.dumps({'dependencies': [package]})!r})", encoding="utf-8")
    assert audit_dependencies.run_pip_audit([sys.executable, str(script)]) == code


def test_every_licence_is_known_and_accepted() -> None:
    assert notices.find_problems() == []


def test_the_licence_of_a_package_that_some_pythons_lack_is_stated() -> None:
    """There, it has no metadata to read."""
    pins = [pin for name in audit_dependencies.SETS for pin in lockfile.read_pins(name)]
    partial = {pin.name for pin in pins if "python_full_version" in (pin.marker or "")}
    assert partial - lockfile.read_licenses()["stated"].keys() == set()


def test_an_unknown_or_refused_licence_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    licenses = lockfile.read_licenses()
    del licenses["stated"]["pystemmer"]  # its metadata says "MIT, BSD", which is no SPDX expression
    licenses["accepted"]["shipped"].remove("LGPL-2.1-or-later")
    for module in (lockfile, notices):
        monkeypatch.setattr(module, "read_licenses", lambda: licenses)
    assert [problem.split(":")[0].split()[0] for problem in notices.find_problems()] == ["pystemmer", "zeroconf"]


def test_the_notices_are_up_to_date() -> None:
    assert notices.NOTICES.read_text(encoding="utf-8") == notices.write_notices(lockfile.read_shipped_pins()), (
        "run scripts/notices.py"
    )


def test_every_included_file_of_others_exists_and_data_of_the_package_is_accounted_for() -> None:
    package = lockfile.ROOT / "src" / "waypost"
    included = [
        (work["name"], sorted(package.glob(pattern)))
        for work in lockfile.read_licenses()["included"]
        for pattern in work["files"]
    ]
    assert [name for name, files in included if not files] == []
    named = {file for _, files in included for file in files}
    # Weights and scripts of others would be here. The page's script is ours.
    data = {path for suffix in ("npy", "npz", "onnx", "model", "js", "woff2") for path in package.rglob(f"*.{suffix}")}
    assert data - named == {package / "server" / "web" / "assets" / "page.js"}


@pytest.mark.parametrize("set_name", audit_dependencies.SETS)
def test_the_bill_of_materials_follows_the_schema_and_lists_every_pin(set_name: str) -> None:
    text = sbom.build_sbom(set_name)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    pins = {(pin.name, pin.version) for pin in lockfile.read_pins(set_name)}
    assert {(part["name"], part["version"]) for part in document["components"]} == pins
    assert [part["name"] for part in document["components"] if not part["licenses"]] == []
    assert document["metadata"]["component"]["name"] == "waypost"
    direct = next(row for row in document["dependencies"] if row["ref"].startswith("pkg:pypi/waypost@"))
    assert direct["dependsOn"]


def test_the_bill_of_materials_is_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sbom.build_sbom("runtime") == sbom.build_sbom("runtime")
    assert "timestamp" not in json.loads(sbom.build_sbom("runtime"))["metadata"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1750000000")
    assert json.loads(sbom.build_sbom("runtime"))["metadata"]["timestamp"] == "2025-06-15T15:06:40+00:00"
