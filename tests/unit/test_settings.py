"""Settings: precedence, checks, and the table of rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import waypost
from waypost.cli.main import cli
from waypost.errors import ConfigurationError
from waypost.settings import (
    RENAMED_SETTINGS,
    SERVICE_SETTINGS,
    SETTINGS,
    Settings,
    data_folder,
    find_admin_token,
    is_loopback,
    load_connection_settings,
    load_settings,
)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(
    flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, config: Path | None = None
) -> Settings:
    return load_settings(flags, config=config, environ=environ or {})


def test_every_field_is_a_setting_and_loads_with_its_default() -> None:
    assert [setting.name for setting in SERVICE_SETTINGS] == list(Settings.__struct_fields__)
    settings = load()
    for setting in SERVICE_SETTINGS:
        if setting.name != "data":
            assert getattr(settings, setting.name) == setting.default, setting.name


def test_every_setting_is_read_by_the_service() -> None:
    package = Path(waypost.__file__).parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    read = set(re.findall(r"(?:(?<=settings)|(?<=self))\.([a-z_0-9]+)", text))
    unread = {setting.name for setting in SERVICE_SETTINGS} - read
    assert not unread, f"nothing reads the settings {unread}: pass them on in app/ (see ARCHITECTURE.md, 'a setting')"


@pytest.mark.parametrize(("old", "new"), RENAMED_SETTINGS.items())
def test_an_old_name_is_refused_with_its_new_name_in_file_variable_and_flag(old: str, new: str, tmp_path: Path) -> None:
    assert old not in {setting.name for setting in SETTINGS}
    (tmp_path / "old.toml").write_text(f"{old} = true\n")
    with pytest.raises(ConfigurationError, match=f"{old}' is now named '{new}'") as caught:
        load(config=tmp_path / "old.toml")
    assert caught.value.path == old
    with pytest.raises(ConfigurationError, match=f"{old}' is now named '{new}'") as caught:
        load(environ={f"WAYPOST_{old.upper()}": "1"})
    assert f"WAYPOST_{new.upper()}" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match=f"{old}' is now named '{new}'"):
        load({old: True})
    flag = old.replace("_", "-")
    for given in ([f"--{flag}"], [f"--{flag}", "x"], [f"--no-{flag}"]):
        result = CliRunner().invoke(cli, ["serve", *given])
        assert result.exit_code != 0
        assert f"is now named --{new.replace('_', '-')}." in result.output


def test_every_setting_has_a_flag_a_variable_and_a_sentence() -> None:
    for setting in SETTINGS:
        assert setting.flag == "--" + setting.name.replace("_", "-")
        assert setting.variable == "WAYPOST_" + setting.name.upper()
        assert setting.doc.endswith(".")
        assert setting.default != "", "an optional text is `str | None`, with `default=...` in its Row for the help"


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('port = 1001\nhost = "127.0.0.2"\nlog_level = "debug"\n')
    settings = load({"port": 1003, "host": None}, {"WAYPOST_PORT": "1002", "WAYPOST_HOST": "127.0.0.3"}, file)
    assert (settings.port, settings.host, settings.log_level) == (1003, "127.0.0.3", "debug")


def test_the_file_in_the_working_folder_is_read_without_being_named(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text("port = 1001\n")
    assert load().port == 1001


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("port = 1001\n")
    assert load(environ={"WAYPOST_CONFIG": str(tmp_path / "other.toml")}).port == 1001


def test_a_relative_data_folder_belongs_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "my.toml"
    file.write_text('data = "state"\n')
    assert load(config=file).data == tmp_path / "etc" / "state"


def test_the_data_folder_follows_the_xdg_rule() -> None:
    assert data_folder({"XDG_DATA_HOME": "/srv/share"}) == Path("/srv/share/waypost")
    at_home = Path.home() / ".local" / "share" / "waypost"
    assert data_folder({"XDG_DATA_HOME": "relative"}) == at_home
    assert data_folder({}) == at_home
    assert load(environ={"WAYPOST_DATA": "/srv/x"}).data == Path("/srv/x")


def test_the_folder_of_test_data_is_no_setting_and_no_error() -> None:
    """A shell that runs the tests may start a service too."""
    assert load(environ={"WAYPOST_SHARED": "/data", "WAYPOST_PORT": "1001"}).port == 1001


@pytest.mark.parametrize(
    ("variable", "text"), [("WAYPOST_PROT", "1"), ("WAYPOST_ANONYMOUS_READS", "1"), ("WAYPOST_STORES", "memory")]
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(variable: str, text: str) -> None:
    nearest = {"WAYPOST_PROT": "PORT", "WAYPOST_ANONYMOUS_READS": "ANONYMOUS_READ", "WAYPOST_STORES": "STORE"}
    with pytest.raises(ConfigurationError) as caught:
        load(environ={variable: text})
    assert f"WAYPOST_{nearest[variable]}" in str(caught.value)
    assert variable in str(caught.value)


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text("watch_keep_second = 5\n")
    with pytest.raises(ConfigurationError, match="'watch_keep_seconds'"):
        load()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WAYPOST_PORT": "many"}, "WAYPOST_PORT must be a whole number, not 'many'"),
        ({"WAYPOST_PORT": "70000"}, "between 0 and 65535"),
        ({"WAYPOST_OPEN": "perhaps"}, "WAYPOST_OPEN must be true or false"),
        ({"WAYPOST_STORE": "redis"}, "one of sqlite, memory"),
        ({"WAYPOST_DEFAULT_VISIBILITY": "secret"}, "one of public, internal, private"),
        ({"WAYPOST_BASE_URL": "waypost.example"}, "is not the address of a service"),
        ({"WAYPOST_PORT": "tcp://10.0.0.1:8440"}, "Kubernetes service link"),
        ({"WAYPOST_SERVICE_HOST": "10.0.0.1"}, "enableServiceLinks"),
    ],
)
def test_a_bad_value_is_refused_with_its_origin(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environ=environ)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('port = "8440"', "must be a whole number, not '8440'"),
        ("open = 1", "must be true or false, not 1"),
        ("port = ", "is not TOML"),
        ('token = "secret"', "cannot be set in a file"),
        ('server = "http://elsewhere.example"', "cannot be set in a file"),
        ('host = ""', "must be a text"),
    ],
)
def test_a_bad_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load()
    assert message in str(caught.value)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.toml cannot be read"):
        load(config=tmp_path / "missing.toml")


def test_switches_read_the_usual_words() -> None:
    for word in ("1", "true", "YES", "on"):
        assert load(environ={"WAYPOST_ANONYMOUS_READ": word}).anonymous_read
    for word in ("0", "false", "No", "off", ""):
        assert not load(environ={"WAYPOST_ANONYMOUS_READ": word}).anonymous_read


def test_open_is_for_loopback_only() -> None:
    assert load({"open": True}).open
    for host in ("0.0.0.0", "192.0.2.1", "example.net"):
        with pytest.raises(ConfigurationError, match="loopback"):
            load({"open": True, "host": host})
    for url in ("http://127.0.0.1:9000", "https://localhost", "http://[::1]:8440"):
        assert load({"open": True, "base_url": url}).open
    for url in ("https://agents.example.net", "http://192.0.2.1:8440", "http://localhost.example"):
        with pytest.raises(ConfigurationError) as caught:
            load({"open": True, "base_url": url})
        assert caught.value.path == "base_url"


def test_loopback_addresses_are_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "localhost.example", "10.0.0.1", "::")))


def test_the_public_url_comes_from_the_bound_port_unless_it_is_given() -> None:
    assert Settings(data=Path()).public_url() == "http://127.0.0.1:8440"
    assert Settings(data=Path(), port=0).public_url(5555) == "http://127.0.0.1:5555"
    assert Settings(data=Path(), host="::1").public_url() == "http://[::1]:8440"
    assert Settings(data=Path(), host="0.0.0.0").public_url() == "http://127.0.0.1:8440"
    assert Settings(data=Path(), base_url="https://w.example/").public_url(1) == "https://w.example"


def test_a_client_finds_the_service_of_this_machine_and_its_admin_token(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("secret\n")
    connection = load_connection_settings({"data": str(tmp_path)}, environ={"WAYPOST_PORT": "9000"})
    assert connection.base_url == "http://127.0.0.1:9000"
    assert connection.token == "secret"
    assert connection.timeout == 30.0


def test_a_client_cannot_wait_for_no_time_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_connection_settings({"data": str(tmp_path), "timeout": 0})
    assert "timeout must be at least" in caught.value.message


def test_a_token_that_was_given_wins_over_the_admin_token(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("secret\n")
    environ = {"WAYPOST_DATA": str(tmp_path), "WAYPOST_TOKEN": "mine"}
    assert load_connection_settings(environ=environ).token == "mine"
    assert load_connection_settings({"token": "other"}, environ=environ).token == "other"


def test_the_admin_token_is_never_offered_to_another_host(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("secret\n")
    assert find_admin_token(tmp_path, "http://localhost:1") == "secret"
    assert find_admin_token(tmp_path, "https://waypost.example") is None
    assert find_admin_token(tmp_path / "nowhere", "http://localhost:1") is None
    connection = load_connection_settings({"data": tmp_path, "server": "https://waypost.example"}, environ={})
    assert (connection.base_url, connection.token) == ("https://waypost.example", None)


def test_a_file_in_the_working_folder_cannot_send_a_client_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text('host = "203.0.113.9"\nport = 9000\n')
    assert load_connection_settings(environ={}).base_url == "http://127.0.0.1:9000"


def test_processes_cannot_share_a_store_in_memory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings({"data": tmp_path, "workers": 2, "store": "memory"}, environ={})
    assert refused.value.path == "workers"


@pytest.mark.parametrize("given", ["0", "65", "two"])
def test_the_number_of_processes_is_bounded(given: str) -> None:
    with pytest.raises(ConfigurationError):
        load_settings(environ={"WAYPOST_WORKERS": given})
    assert load_settings(environ={"WAYPOST_WORKERS": "64"}).workers == 64


def test_a_list_comes_from_a_repeated_flag_commas_or_an_array(tmp_path: Path) -> None:
    ranges = ("10.0.0.0/8", "127.0.0.1/32")
    assert load_settings({"allow_cidrs": ranges}, environ={}).allow_cidrs == ranges
    assert load_settings({"allow_cidrs": (",".join(ranges),)}, environ={}).allow_cidrs == ranges
    variables = {"WAYPOST_ALLOW_CIDRS": " 10.0.0.0/8 , 127.0.0.1/32,"}
    assert load_settings(environ=variables).allow_cidrs == ranges
    file = tmp_path / "waypost.toml"
    file.write_text('allow_cidrs = ["10.0.0.0/8", "127.0.0.1/32"]')
    assert load_settings(config=file, environ={}).allow_cidrs == ranges
    file.write_text('allow_cidrs = "10.0.0.0/8"')
    with pytest.raises(ConfigurationError, match="a list of texts"):
        load_settings(config=file, environ={})


@pytest.mark.parametrize("text", ["10.0.0.1/8", "everything", "10.0.0.0/33", "agents.example.com"])
def test_a_range_of_addresses_is_written_as_one(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load_settings({"allow_cidrs": (text,)}, environ={})
    assert refusal.value.path == "allow_cidrs"


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("localhost:9000", "http://localhost:9000"),
        ("localhost:9000/", "http://localhost:9000"),
        ("localhost", "http://localhost:8440"),
        ("::1", "http://[::1]:8440"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("agents.example.net", "https://agents.example.net"),
        ("agents.example.net:8440", "https://agents.example.net:8440"),
        ("http://agents.example.net:8440/", "http://agents.example.net:8440"),
    ],
)
def test_a_server_is_named_by_url_or_by_host_and_port(tmp_path: Path, server: str, url: str) -> None:
    """Without a scheme, a token goes unencrypted to this machine only."""
    assert load_connection_settings({"data": tmp_path, "server": server}, environ={}).base_url == url


@pytest.mark.parametrize("server", ["x y", "localhost:port", "http://", "localhost:99999", ":80"])
def test_a_server_that_is_no_address_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(ConfigurationError, match="not the address"):
        load_connection_settings({"data": tmp_path, "server": server}, environ={})
