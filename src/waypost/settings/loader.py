"""Load settings: flags over `WAYPOST_*` variables over the settings file over the defaults."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from waypost.errors import ConfigurationError
from waypost.model.credentials import resolve_source
from waypost.settings.client import CLIENT_SETTINGS, ConnectionSettings, find_admin_token
from waypost.settings.locations import data_folder, is_loopback, parse_server
from waypost.settings.service import SERVICE_SETTINGS, Settings
from waypost.settings.setting import PREFIX, Setting, check_value, parse_variable

CONFIG_FILE = "waypost.toml"

SETTINGS = SERVICE_SETTINGS + CLIENT_SETTINGS

# Old name: new name. An old name is an error, in a file, a variable or a flag.
RENAMED_SETTINGS = {
    "foreign_index": "trust_external_index",
    "legacy_canon": "legacy_signatures",
    "unsigned": "unsigned_announcements",
}

_SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TEST_DATA = f"{PREFIX}SHARED"  # the folder with the data of the tests, whose shell may also start a service
_SERVICE_LINK = re.compile(r"(SERVICE_(HOST|PORT).*|PORT_\d+_.*)\Z")


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a service. A flag with the value None was not given."""
    values = _collect(flags or {}, config, os.environ if environ is None else environ)
    return Settings(**{setting.name: values[setting.name] for setting in SERVICE_SETTINGS})


def load_connection_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> ConnectionSettings:
    """How to reach a service: the one named, else the one that these settings would start on this machine."""
    values = _collect(flags or {}, config, os.environ if environ is None else environ)
    server = values["server"]
    if server is None:
        host = values["host"] if is_loopback(values["host"]) else "127.0.0.1"
        scheme = "http" if values["tls_cert"] is None else "https"
        server = f"{scheme}://{f'[{host}]' if ':' in host else host}:{values['port'] or 8440}"
    base_url = parse_server(server).rstrip("/")
    token = values["token"]
    if token is None and values["cert"] is None:  # with a certificate, the caller is its subject
        token = find_admin_token(values["data"], base_url)
    files = {name: values[name] for name in ("ca", "cert", "cert_key")}
    named = values["server"] is not None
    return ConnectionSettings(base_url=base_url, token=token, timeout=values["timeout"], named=named, **files)


def _collect(flags: Mapping[str, Any], config: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    values["data"] = data_folder(environ)
    given = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name != _TEST_DATA}
    values |= _from_file(_config_path(config, given.pop(f"{PREFIX}CONFIG", None)))
    values |= _from_environment(given)
    for name, value in flags.items():
        if value is not None:
            setting = _find_setting(name, f"the flag {name!r}")
            values[name] = check_value(setting, value, setting.flag)
    return values


def _config_path(flag: Path | None, variable: str | None) -> Path | None:
    """The settings file: the one named, which must exist, else the one in the working folder, if it exists."""
    if flag is not None or variable:
        return Path(flag if flag is not None else variable or "")
    here = Path(CONFIG_FILE)
    return here if here.is_file() else None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"The settings file {path} cannot be read: {error.strerror}.", path="config", hint="Check --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The settings file {path} is not TOML: {error}.", path="config") from None
    values = {}
    for name, value in document.items():
        origin = f"{name!r} in {path}"
        setting = _find_setting(name, origin)
        if not setting.in_file:
            raise ConfigurationError(
                f"{origin} cannot be set in a file.", path=name, hint=f"Use {setting.flag} or {setting.variable}."
            )
        values[name] = check_value(setting, value, origin)
    for name, value in values.items():  # relative to the file
        if _SETTINGS_BY_NAME[name].kind == "path":
            values[name] = path.parent / value
    if "jwks" in values:
        values["jwks"] = tuple(resolve_source(source, path.parent) for source in values["jwks"])
    if "issuers" in values:
        values["issuers"] = tuple(issuer.resolve_paths(path.parent) for issuer in values["issuers"])
    if "peers" in values:
        values["peers"] = tuple(peer.resolve_paths(path.parent) for peer in values["peers"])
    return values


def _from_environment(given: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, text in given.items():
        name = variable.removeprefix(PREFIX).lower()
        if _SERVICE_LINK.match(name.upper()) or (name == "port" and text.startswith("tcp://")):
            raise ConfigurationError(
                f"The variable {variable} is a Kubernetes service link, not a setting.",
                path=variable,
                hint="Set enableServiceLinks: false in the pod.",
            )
        setting = _find_setting(name, f"the variable {variable}", as_variable=True)
        if setting.in_file_only:
            raise ConfigurationError(
                f"{name} is a table: it is set in a settings file.", path=variable, hint=f"Write [[{name}]] there."
            )
        if text:
            values[name] = check_value(setting, parse_variable(setting, text, variable), variable)
    return values


def _find_setting(name: str, origin: str, *, as_variable: bool = False) -> Setting:
    """Raises ConfigurationError with the new or the nearest name."""
    setting = _SETTINGS_BY_NAME.get(name)
    if setting is not None:
        return setting
    if name in RENAMED_SETTINGS:
        renamed = _SETTINGS_BY_NAME[RENAMED_SETTINGS[name]]
        new_name = renamed.variable if as_variable else repr(renamed.name)
        raise ConfigurationError(
            f"The setting {name!r} is now named {renamed.name!r}.",
            path=name,
            hint=f"Use {new_name} instead of {origin}.",
        )
    near = get_close_matches(name.replace("-", "_"), _SETTINGS_BY_NAME, n=1, cutoff=0.0)
    nearest = _SETTINGS_BY_NAME[near[0]].variable if as_variable else near[0]
    raise ConfigurationError(
        f"There is no setting for {origin}.", path=name, hint=f"The nearest known one is {nearest!r}."
    )
