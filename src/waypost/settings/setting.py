"""One setting: its name, kind, bounds and default. Flag, variable and documentation follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from waypost.errors import ConfigurationError

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


# ---- Whether a value fits its row: its kind, its choices, its bounds. A text of the environment becomes a value here.

_KIND_WORDS = {
    "text": "a text",
    "texts": "a list of texts",
    "tables": "an array of tables",
    "folder": "a path",
    "whole": "a whole number",
    "seconds": "a number of seconds",
    "switch": "true or false",
}

_TRUE = frozenset(("1", "true", "yes", "on"))

_FALSE = frozenset(("0", "false", "no", "off"))


def parse_variable(setting: Setting, text: str, origin: str) -> Any:
    """A variable's text as the setting's kind."""
    folded = text.strip().lower()
    try:
        match setting.kind:
            case "whole":
                return int(folded)
            case "texts":
                return _texts(text)
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
    if setting.shape is not None:
        return _tables(setting, value, origin)
    if setting.kind == "texts":
        value = tuple(part for item in value for part in _texts(item)) if _are_texts(value) else value
    match setting.kind:
        case "switch":
            fits = isinstance(value, bool)
        case "texts":
            fits = _are_texts(value)
        case "whole":
            fits = isinstance(value, int) and not isinstance(value, bool)
        case "seconds":
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        case "folder":
            fits = isinstance(value, (str, Path)) and bool(str(value))
        case _:
            fits = isinstance(value, str) and bool(value.strip())
    if not fits:
        raise _wrong_kind(setting, value, origin)
    _check_choice(setting, value, origin)
    _check_range(setting, value, origin)
    if setting.kind == "folder":
        return Path(value).expanduser()
    return float(value) if setting.kind == "seconds" else value


def _tables(setting: Setting, value: Any, origin: str) -> Any:
    try:
        return msgspec.convert(value, tuple[setting.shape, ...])  # type: ignore[name-defined]
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{origin} does not fit: {error}.", path=setting.name, hint=f"{setting.doc} It is an array of tables."
        ) from None


def _texts(text: str) -> tuple[str, ...]:
    """Values between commas, as a flag or a variable gives them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _wrong_kind(setting: Setting, value: Any, origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin} must be {_KIND_WORDS[setting.kind]}, not {value!r}.", path=setting.name, hint=setting.doc
    )


def _check_choice(setting: Setting, value: Any, origin: str) -> None:
    if setting.choices and value not in setting.choices:
        raise ConfigurationError(
            f"{origin} must be one of {', '.join(setting.choices)}, not {value!r}.",
            path=setting.name,
            hint=setting.doc,
        )


def _check_range(setting: Setting, value: Any, origin: str) -> None:
    too_small = setting.least is not None and value < setting.least
    if too_small or (setting.most is not None and value > setting.most):
        bounds = f"at least {setting.least}" if setting.most is None else f"between {setting.least} and {setting.most}"
        raise ConfigurationError(f"{origin} must be {bounds}, not {value}.", path=setting.name, hint=setting.doc)
