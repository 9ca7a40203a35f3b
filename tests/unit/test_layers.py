"""Rules of the architecture that import-linter cannot see."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import waypost

PACKAGE = Path(waypost.__file__).parent
REACH_THROUGH = re.compile(r"registry\.(store|ranker|catalog|seal|_\w+)\b")


def test_nothing_reaches_through_the_registry_into_its_parts() -> None:
    """APIs talk to the facade; the parts behind it can change without them."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "registry" not in path.relative_to(PACKAGE).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if REACH_THROUGH.search(line) and not line.lstrip().startswith(("from waypost.", "import waypost."))
    ]
    assert found == []


def test_no_public_class_name_is_defined_twice() -> None:
    names: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "sync" in path.parts:
            continue  # generated from client/aio
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_objects_of_a_service_are_complete_when_constructed() -> None:
    """The composition root passes everything to constructors; it sets no attribute of what it made."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(target)}"
        for path, node in statements("app")
        for target in assigned_to(node)
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    ]
    assert found == []


# Filled while the process runs: models of a folder, which take seconds to load, are shared by all services of a process.
SHARED = {"embedders/use_encoder.py: _loaded"}


def test_no_module_outside_app_has_state() -> None:
    """Two services in one process share nothing. An empty container at module level is there to be filled later."""
    found = set()
    for path, node in statements():
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith("app/"):
            continue
        if isinstance(node, ast.Global):
            found.add(f"{place}: global {', '.join(node.names)}")
        is_top = node.col_offset == 0 and isinstance(node, ast.Assign | ast.AnnAssign)
        if is_top and node.value is not None and is_empty_container(node.value):
            found |= {f"{place}: {ast.unparse(target)}" for target in assigned_to(node)}
    assert found == SHARED


def statements(folder: str = "") -> Iterator[tuple[Path, ast.stmt]]:
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.stmt):
                yield path, node


def assigned_to(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def is_empty_container(value: ast.expr) -> bool:
    containers = ("dict", "list", "set", "deque", "Counter", "defaultdict", "OrderedDict", "LruCache", "RateLimiter")
    return ast.unparse(value) in ("{}", "[]") or (
        isinstance(value, ast.Call)
        and ast.unparse(value.func).rpartition(".")[2].partition("[")[0] in containers
        and not any(isinstance(argument, ast.Call) for argument in value.args)
    )


# Packages of the service, which `net` connects to the world. `transports` connects to what the operator configured.
SERVING = ("app", "domains", "federation", "messaging", "registry", "server", "stores")
CLIENTS = re.compile(
    r"(httpx2?|httpcore2?|aiohttp|requests|urllib\.request|http\.client|websockets\.(asyncio|sync)\.client)\b"
)
CONNECTS = re.compile(r"(^|\.)(open_connection|create_connection|sock_connect)$")
# To nodes of the same cluster, and to processes of the same service.
INSIDE = {"server/api/adp/agp/tunnel.py", "server/api/adp/agp/websocket.py"}


def test_only_the_network_package_connects_to_addresses_of_strangers() -> None:
    """S1, P6: every request to an address that somebody named passes one check."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for folder in SERVING
        for path, node in statements(folder)
        if _connects(node)
    }
    assert found == INSIDE


def _connects(node: ast.stmt) -> bool:
    """Whether a statement imports a client, or calls a function that connects."""
    if isinstance(node, ast.Import):
        return any(CLIENTS.match(name.name) for name in node.names)
    if isinstance(node, ast.ImportFrom):
        return any(CLIENTS.match(f"{node.module}.{name.name}") for name in node.names)
    return any(CONNECTS.search(ast.unparse(each.func)) for each in ast.walk(node) if isinstance(each, ast.Call))


def test_no_folder_has_more_than_25_modules() -> None:
    folders = Counter(path.parent for path in PACKAGE.rglob("*.py"))
    assert {str(folder): count for folder, count in folders.items() if count > 25} == {}
