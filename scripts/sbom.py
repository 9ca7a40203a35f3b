#!/usr/bin/env python3
"""Write a software bill of materials (CycloneDX 1.6, JSON) of the locked requirements.

    scripts/sbom.py [FILE]          what the service needs (requirements/runtime.txt); without FILE to stdout
    scripts/sbom.py --set test      what building and testing needs, too: `build` or `test`

The same lock files give the same bytes: the serial number is derived from the content, and there is a time only if
SOURCE_DATE_EPOCH is set.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lockfile import Pin, find_license, needs_of, read_pins, read_project

_NAMESPACE = uuid.UUID("6f3f7c1e-2f0c-5c55-9a7e-0f3b5d2f9b11")  # ours, for serial numbers
_licenses = LicenseFactory()


def build_sbom(set_name: str) -> str:
    """Return the bill of materials as JSON. Raises ValueError if it does not follow the schema."""
    pins, project = read_pins(set_name), read_project()
    components = {pin.name: _component(pin) for pin in pins}
    root = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.APPLICATION,
        description=project["description"],
        bom_ref=f"pkg:pypi/{project['name']}@{project['version']}",
        purl=PackageURL("pypi", None, project["name"], project["version"]),
        licenses=[_licenses.make_from_string(project["license"])],
    )
    bom = Bom(components=components.values(), dependencies=[_dependency(pin, components) for pin in pins])
    bom.dependencies.add(_root_dependency(root, set_name, components))
    bom.metadata.component = root
    content = repr([(root.version, pin) for pin in pins])
    bom.serial_number = uuid.uuid5(_NAMESPACE, content)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC) if epoch else None  # type: ignore[assignment]
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials does not follow the CycloneDX schema: {problem}")
    return text


def _component(pin: Pin) -> Component:
    license_ = find_license(pin)
    purl = PackageURL("pypi", None, pin.name, pin.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(purl)),
        comment="SHA-256 of the accepted files",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=value) for value in pin.sha256],
    )
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[_licenses.make_from_string(license_)] if license_ else [],
        external_references=[files],
        properties=[Property(name="waypost:marker", value=pin.marker)] if pin.marker else [],
    )


def _dependency(pin: Pin, components: dict[str, Component]) -> Dependency:
    return Dependency(components[pin.name].bom_ref, _dependencies(needs_of(pin), components))


def _root_dependency(root: Component, set_name: str, components: dict[str, Component]) -> Dependency:
    project = read_project()
    lines = {
        "runtime": project["dependencies"],
        "test": project["dependencies"] + project["optional-dependencies"]["test"],
        "build": [],
    }[set_name]
    needs = [Requirement(line) for line in lines] or [Requirement(name) for name in components]
    return Dependency(root.bom_ref, _dependencies(needs, components))


def _dependencies(needs: Iterable[Requirement], components: dict[str, Component]) -> list[Dependency]:
    names = {canonicalize_name(need.name) for need in needs}
    return [Dependency(components[name].bom_ref) for name in sorted(names & components.keys())]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a CycloneDX bill of materials of the locked requirements.")
    parser.add_argument("file", nargs="?", type=Path, help="where to write it; default: stdout")
    parser.add_argument("--set", choices=["build", "runtime", "test"], default="runtime", help="which lock file")
    arguments = parser.parse_args()
    text = build_sbom(arguments.set)
    if arguments.file is None:
        sys.stdout.write(text)
    else:
        arguments.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
