"""One setting: its name, kind, bounds and default. Flag, variable and documentation follow from it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PREFIX = "WAYPOST_"

Kind = Literal["text", "texts", "tables", "folder", "whole", "seconds", "switch"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: from it come flag, variable, file key, check and documentation."""

    name: str
    kind: Kind
    doc: str
    default: Any = None
    shown_default: str | None = None  # where the default is a rule, not a value
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: int | None = None
    in_file: bool = True  # a credential, and the address that it is sent to, are never taken from a file
    shape: type[Any] | None = None  # of each table

    @property
    def in_file_only(self) -> bool:
        return self.kind == "tables"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()
