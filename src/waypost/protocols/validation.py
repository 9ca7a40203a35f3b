"""Validation of a document without registering it: what it is, and everything that is wrong with it.

A codec reports the first problem only. So the value that it complains about is replaced by one of the dialect's examples (or
removed), and the document is decoded again, until nothing is left to report.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidRequest, UnknownDialect
from waypost.model.json import JsonObject, parse_object
from waypost.model.record import MappingLoss
from waypost.protocols.codec import Codec, DecodeContext, Decoded
from waypost.protocols.dialects import DIALECTS, decode_document, detect_dialect, find_nearest_dialect, get_codec
from waypost.protocols.foreign_formats import find_foreign_format

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


class DocumentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong: where (a JSON path), what, and what to do."""

    path: str
    message: str
    hint: str | None = None


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `validate` found. `dialect` is the nearest one if none recognises the document, or None.

    Example:
        report = validate(Path("agent-card.json"))
        for problem in report.problems:
            print(problem.path, problem.message)
    """

    valid: bool
    dialect: str | None = None
    title: str | None = None  # what people call a document of this dialect
    id: str | None = None  # under which it would be registered
    name: str | None = None
    problems: tuple[DocumentProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    losses: tuple[MappingLoss, ...] = ()


def validate_document(data: bytes, dialect: str | None, context: DecodeContext) -> ValidationReport:
    """Check a document of any dialect by the rules of the codecs. Signatures and addresses are not checked."""
    try:
        name, _, decoded = decode_document(data, dialect, context)
    except InvalidRequest as error:
        return _report_problems(data, dialect, context, error)
    return _report(name, decoded=decoded)


def _report(
    name: str | None, *, decoded: Decoded | None = None, problems: list[DocumentProblem] | None = None
) -> ValidationReport:
    title = DIALECTS[name].title if name is not None else None
    if decoded is None:
        return ValidationReport(valid=False, dialect=name, title=title, problems=tuple(problems or ()))
    return ValidationReport(
        valid=True,
        dialect=name,
        title=title,
        id=decoded.record.id,
        name=decoded.record.name,
        warnings=decoded.warnings,
        losses=decoded.losses,
    )


def _report_problems(
    data: bytes, dialect: str | None, context: DecodeContext, error: InvalidRequest
) -> ValidationReport:
    if not data.lstrip().startswith(b"{"):
        return _report(dialect, problems=[_problem(error)])
    try:
        document = parse_object(data)
        name = dialect or detect_dialect(document)
        missing: tuple[str, ...] = ()
    except UnknownDialect:
        foreign = find_foreign_format(document)
        if foreign is not None:
            return _report(foreign.dialect, problems=[_problem(error)])
        nearest = find_nearest_dialect(document)
        if nearest is None:
            return _report(None, problems=[_problem(error)])
        name, missing = nearest.name, nearest.missing
    except InvalidRequest:
        return _report(None, problems=[_problem(error)])
    return _report(
        name, problems=_find_problems(deepcopy(document), get_codec(name), context, missing) or [_problem(error)]
    )


def _find_problems(
    document: JsonObject, codec: Codec, context: DecodeContext, missing: tuple[str, ...]
) -> list[DocumentProblem]:
    found: dict[str, DocumentProblem] = {}
    repairs = _Repairs(document, codec)
    for member in missing:  # without which the document is not recognised
        path = f"$.{member}"
        found[path] = DocumentProblem(path=path, message=f"The member {member!r} is missing.", hint="Add it.")
        repairs.repair(path)
    for _ in range(limits.VALIDATION_PROBLEMS):
        try:
            decode_document(msgspec.json.encode(document), codec.name, context)
            break
        except InvalidRequest as error:
            problem = _problem(error)
            if not repairs.has_changed(problem.path):
                found.setdefault(problem.path, problem)
            if not repairs.repair(problem.path):
                break
    return list(found.values())


def _problem(error: InvalidRequest) -> DocumentProblem:
    return DocumentProblem(path=error.path or "$", message=error.message, hint=error.hint)


class _Repairs:
    """Replaces values of a document by those of the dialect's examples, in place, so that decoding gets further."""

    def __init__(self, document: JsonObject, codec: Codec) -> None:
        self._document = document
        self._codec = codec
        self._changed: dict[str, int] = {}

    def has_changed(self, path: str) -> bool:
        """Whether a problem at this path is one of a repair, and not of the document."""
        return any(path == changed or path.startswith((f"{changed}.", f"{changed}[")) for changed in self._changed)

    def repair(self, path: str) -> bool:
        """Change the value at a path: first to that of an example, then remove it. False if nothing is left to try."""
        steps = _parse_path(path)
        attempt = self._changed.get(path, 0)
        if not steps or attempt > 1:
            return False
        self._changed[path] = attempt + 1
        parent = _find(self._document, steps[:-1])
        examples = [value for example in self._codec.examples() if (value := _find(example, steps)) is not None]
        if attempt == 0 and examples:
            return _put(parent, steps[-1], deepcopy(examples[0]))
        return _remove(parent, steps[-1])


def _parse_path(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for member, index, quoted in _STEP.findall(path.removeprefix("$")):
        steps.append(int(index) if index else member or quoted)
    return steps


def _find(value: Any, steps: list[str | int]) -> Any:
    """The value at a path, or None. An index beyond the end of an array means its first item, which is enough for examples."""
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and value:
            value = value[step if step < len(value) else 0]
        else:
            return None
    return value


def _put(parent: Any, step: str | int, value: Any) -> bool:
    if isinstance(parent, dict) and isinstance(step, str):
        parent[step] = value
        return True
    if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
        parent[step] = value
        return True
    return False


def _remove(parent: Any, step: str | int) -> bool:
    if isinstance(parent, dict) and isinstance(step, str) and step in parent:
        del parent[step]
        return True
    if isinstance(parent, list) and isinstance(step, int) and step < len(parent):
        del parent[step]
        return True
    return False
