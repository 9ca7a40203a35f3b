"""One setting: its name, kind, bounds and default. Flag, variable, check and documentation are derived from it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec

from waypost.errors import ConfigurationError

PREFIX = "WAYPOST_"

URL_MARK = "://"  # at the end of a choice: any URL of this scheme

Kind = Literal["text", "list", "map", "tables", "path", "integer", "seconds", "switch"]

_KINDS: dict[Any, Kind] = {str: "text", Path: "path", int: "integer", float: "seconds", bool: "switch"}

_KIND_NAMES: dict[Kind, str] = {
    "text": "a text",
    "list": "a list of texts",
    "map": "a table of names and values (NAME=VALUE in a flag or variable)",
    "tables": "an array of tables",
    "path": "a path",
    "integer": "a whole number",
    "seconds": "a number of seconds",
    "switch": "true or false",
}

_TRUE = frozenset(("1", "true", "yes", "on"))

_FALSE = frozenset(("0", "false", "no", "off"))


class Row(msgspec.Struct, frozen=True):
    """The rest of a setting's row, beside the name, type and default of the field that it annotates."""

    doc: str
    default: str | None = None  # what the documentation shows as default, if that is a rule and not a value
    choices: Collection[str] = ()
    minimum: float | None = None
    maximum: int | None = None
    metavar: str | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, as the loader, the options of commands and the documentation use it."""

    name: str
    kind: Kind
    doc: str
    default: Any = None
    shown_default: str | None = None
    choices: Collection[str] = ()
    minimum: float | None = None
    maximum: int | None = None
    metavar: str | None = None
    in_file: bool = True
    table_type: type[Any] | None = None  # of each table of an array

    @property
    def in_file_only(self) -> bool:
        return self.kind == "tables"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def read_rows(struct: type[msgspec.Struct], *, in_file: bool = True) -> tuple[Setting, ...]:
    """The settings that the annotated fields of a struct declare, in their order."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(struct)}
    return tuple(
        _read_row(name, annotation, defaults[name], in_file) for name, annotation in struct.__annotations__.items()
    )


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _read_row(name: str, annotation: Any, default: Any, in_file: bool) -> Setting:
    declared, row = annotation.__origin__, annotation.__metadata__[0]
    table_type, kind = None, _KINDS.get(declared)
    if get_origin(declared) is tuple:
        item = get_args(declared)[0]
        kind, table_type = ("list", None) if item is str else ("tables", item)
    elif get_origin(declared) is dict:
        kind = "map"
    elif isinstance(declared, UnionType):
        kind = _KINDS[get_args(declared)[0]]
    if kind is None:
        raise TypeError(f"The field {name} has a type without a kind: {declared}")
    return Setting(
        name=name,
        kind=kind,
        doc=row.doc,
        default=None if default is msgspec.NODEFAULT else default,
        shown_default=row.default,
        choices=row.choices,
        minimum=row.minimum,
        maximum=row.maximum,
        metavar=row.metavar,
        in_file=in_file,
        table_type=table_type,
    )


def parse_variable(setting: Setting, text: str, origin: str) -> Any:
    """Convert the text of an environment variable to the setting's kind."""
    folded = text.strip().lower()
    try:
        match setting.kind:
            case "integer":
                return int(folded)
            case "list" | "map":
                return _split(text)
            case "seconds":
                return float(folded)
            case "switch" if folded in _TRUE | _FALSE:
                return folded in _TRUE
            case "switch":
                raise ValueError
    except ValueError:
        raise _wrong_kind(setting, text, origin) from None
    return text


def check_value(setting: Setting, value: Any, origin: str) -> Any:
    """Return the value in its final type. Raises ConfigurationError if kind, choices or bounds do not fit."""
    if setting.table_type is not None:
        return _convert_tables(setting, value, origin)
    if setting.kind == "map":
        return _convert_map(setting, value, origin)
    if setting.kind == "list":
        value = tuple(part for item in value for part in _split(item)) if _are_texts(value) else value
    match setting.kind:
        case "switch":
            fits = isinstance(value, bool)
        case "list":
            fits = _are_texts(value)
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool)
        case "seconds":
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        case "path":
            fits = isinstance(value, (str, Path)) and bool(str(value))
        case _:
            fits = isinstance(value, str) and bool(value.strip())
    if not fits:
        raise _wrong_kind(setting, value, origin)
    _check_choice(setting, value, origin)
    _check_range(setting, value, origin)
    if setting.kind == "path":
        return Path(value).expanduser()
    return float(value) if setting.kind == "seconds" else value


def _convert_tables(setting: Setting, value: Any, origin: str) -> Any:
    try:
        return msgspec.convert(value, tuple[setting.table_type, ...])  # type: ignore[name-defined]
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{origin} is invalid: {error}.", path=setting.name, hint=f"{setting.doc} It is an array of tables."
        ) from None


def _convert_map(setting: Setting, value: Any, origin: str) -> dict[str, tuple[str, ...]]:
    """A table of texts or lists of texts; from a flag or a variable, a list of NAME=VALUE. A name may occur repeatedly."""
    pairs: list[tuple[str, Any]]
    if _are_texts(value):
        parts = [part.rpartition("=") for item in value for part in _split(item)]
        if not all(separator for _, separator, _ in parts):
            raise _wrong_kind(setting, value, origin)
        pairs = [(name.strip(), text.strip()) for name, _, text in parts]
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        raise _wrong_kind(setting, value, origin)
    converted: dict[str, tuple[str, ...]] = {}
    for name, item in pairs:
        texts = (item,) if isinstance(item, str) else item
        if not name or not _are_texts(texts) or not texts or not all(texts):
            raise _wrong_kind(setting, value, origin)
        converted[name] = (*converted.get(name, ()), *texts)
    return converted


def _split(text: str) -> tuple[str, ...]:
    """Comma-separated values of a flag or a variable."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _wrong_kind(setting: Setting, value: Any, origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin} must be {_KIND_NAMES[setting.kind]}, not {value!r}.", path=setting.name, hint=setting.doc
    )


def is_chosen(value: str, choice: str) -> bool:
    """Whether a value is this choice; one that ends like `postgresql://` stands for every URL of the scheme."""
    return value.startswith(choice) and value != choice if choice.endswith(URL_MARK) else value == choice


def _check_choice(setting: Setting, value: Any, origin: str) -> None:
    if setting.choices and not any(is_chosen(value, choice) for choice in setting.choices):
        choices = ", ".join(setting.choices)
        raise ConfigurationError(
            f"{origin} must be one of {choices}, not {value!r}.", path=setting.name, hint=setting.doc
        )


def _check_range(setting: Setting, value: Any, origin: str) -> None:
    low, high = setting.minimum, setting.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigurationError(f"{origin} must be {bounds}, not {value}.", path=setting.name, hint=setting.doc)
