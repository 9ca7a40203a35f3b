"""Read what requirements/*.txt pin, and the licence that each pinned package states."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
USER_EXTRAS = ("bus", "doh", "lan", "onnx")
# Classifiers that name exactly one licence; "BSD License" does not.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    name: str
    version: str
    marker: str | None  # where it is installed, if not everywhere
    sha256: tuple[str, ...]  # of its files

    def find_distribution(self) -> Distribution | None:
        """Return the installed package; None if it is not for this system."""
        try:
            return distribution(self.name)
        except PackageNotFoundError:
            return None


def read_pins(set_name: str) -> list[Pin]:
    """Read `requirements/<set_name>.txt`: build, runtime or test."""
    text = (REQUIREMENTS / f"{set_name}.txt").read_text(encoding="utf-8")
    return sorted(_parse(text), key=lambda pin: pin.name)


def _parse(text: str) -> Iterator[Pin]:
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line.split("--hash")[0])
        (specifier,) = requirement.specifier
        yield Pin(
            name=canonicalize_name(requirement.name),
            version=specifier.version,
            marker=str(requirement.marker) if requirement.marker else None,
            sha256=tuple(_HASH.findall(line)),
        )


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def read_floors() -> dict[str, dict[str, Any]]:
    return tomllib.loads((REQUIREMENTS / "floors.toml").read_text(encoding="utf-8"))


def read_licenses() -> dict[str, Any]:
    return tomllib.loads((REQUIREMENTS / "licenses.toml").read_text(encoding="utf-8"))


def read_shipped_pins() -> list[Pin]:
    """Return the packages that an installation of Waypost with all its extras for users brings along."""
    pins = {pin.name: pin for pin in (*read_pins("runtime"), *read_pins("test"))}
    extras = read_project()["optional-dependencies"]
    wanted = [Requirement(pin.name) for pin in read_pins("runtime")]
    wanted += [Requirement(line) for extra in USER_EXTRAS for line in extras[extra]]
    found: dict[str, Pin] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in pins and (name not in found or requirement.extras):
            found[name] = pins[name]
            wanted += needs_of(pins[name], requirement.extras)
    return [found[name] for name in sorted(found)]


def needs_of(pin: Pin, extras: Iterable[str] = ()) -> list[Requirement]:
    """Return what an installed package needs on this system."""
    installed = pin.find_distribution()
    needs = [Requirement(line) for line in (installed.requires or [])] if installed else []
    return [
        need
        for need in needs
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def find_license(pin: Pin) -> str | None:
    """Return the SPDX expression of a package: as requirements/licenses.toml states it, or from its metadata."""
    stated: str | None = read_licenses()["stated"].get(pin.name)
    installed = pin.find_distribution()
    if stated or installed is None:
        return stated
    metadata = installed.metadata
    for text in (metadata.get("License-Expression"), metadata.get("License")):
        if text:
            with suppress(InvalidLicenseExpression):
                return canonicalize_license_expression(text)
    names = [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    return _CLASSIFIERS.get(names[0].split(" :: ")[-1]) if len(names) == 1 else None


def license_ids(expression: str) -> set[str]:
    """Return the licence ids of an SPDX expression."""
    return set(re.findall(r"[A-Za-z0-9.+-]+", expression)) - {"AND", "OR", "WITH"}
