"""The doctor on three deployments: default, open, and hardened."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.certificates import Authority
from support.server import RunningServer, running_server
from support.shell import Ran, Shell

AGENT = b"""{"id": "urn:example:one", "name": "One", "description": "Translates invoices.",
 "bindings": [{"protocol": "https", "endpoint": "https://one.example.com/"}]}"""


def run_doctor(server: RunningServer, folder: Path, **environment: str) -> Ran:
    return Shell(folder, server.environment())("doctor", "-o", "json", **environment)


def severities(ran: Ran, *wanted: str) -> dict[str, Any]:
    return {each["layer"]: each.get("setting") for each in ran.json["findings"] if each["severity"] in wanted}


def test_a_start_as_it_is_misses_nothing_on_loopback(tmp_path: Path) -> None:
    with running_server() as server:
        ran = run_doctor(server, tmp_path)
        shown = Shell(tmp_path, server.environment())("doctor")
    assert ran.code == shown.code == 0
    assert severities(ran, "danger", "warning") == {}
    told = severities(ran, "info")
    assert (told["transport"], told["client certificates"]) == ("tls_cert", "client_ca")
    assert "[tls_cert]" in shown.out
    assert shown.out.rstrip().endswith("ok")


def test_the_doctor_reports_an_open_service(tmp_path: Path) -> None:
    with running_server("--open") as server:
        ran = run_doctor(server, tmp_path)
    assert ran.code == 1
    assert severities(ran, "danger", "warning") == {"authentication": "open"}


def test_a_hardened_service_misses_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path, days=90)
    issued = authority.server()
    issued.key.chmod(0o600)
    cert, key = issued.files
    crl = authority.revoke()
    data = tmp_path / "data"
    settings = (
        *("--host", "127.0.0.1", "--tls-cert", cert, "--tls-key", key, "--client-ca", str(authority.certificate)),
        *("--crl", str(crl), "--bind-subject", "--resolver", "127.0.0.1:53,127.0.0.2:53"),
    )
    with running_server(*settings, data=data) as server:
        shell = Shell(tmp_path, {**server.environment(), "WAYPOST_CA": str(authority.certificate)})
        assert shell("allow", "add", "*").code == 0
        lax = shell("doctor", "-o", "json")
        assert shell("allow", "remove", "*").code == 0
        ran = shell("doctor", "-o", "json")
        (data / "admin.token").chmod(0o644)
        leaky = shell("doctor", "-o", "json")
    assert severities(lax, "danger", "warning") == {"announcements": None}
    assert ran.code == 0, ran.err
    assert severities(ran, "danger", "warning") == {}
    assert set(severities(ran, "info")) <= {"announcements", "embedder"}  # an empty allow-list, and no model in tests
    assert leaky.code == 1
    assert severities(leaky, "danger") == {"files": "data"}


def test_without_a_service_the_machine_is_examined(tmp_path: Path) -> None:
    with running_server() as server:
        environment = {**server.environment(), "WAYPOST_SERVER": "http://127.0.0.1:1"}
        shutil.copytree(server.data, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock", "inner*"))
    (tmp_path / "copy").chmod(0o700)
    shell = Shell(tmp_path, {**environment, "WAYPOST_DATA": str(tmp_path / "copy")})
    sound = shell("doctor", "-o", "json")
    (tmp_path / "copy").chmod(0o755)
    open_folder = shell("doctor", "-o", "json", WAYPOST_UNSIGNED_ANNOUNCEMENTS="untrusted")
    assert sound.code == 0
    assert open_folder.code == 1
    assert severities(open_folder, "warning") == {"files": "data", "announcements": "unsigned_announcements"}


def test_without_a_service_damaged_files_are_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data=data) as server:
        environment = {**server.environment(), "WAYPOST_SERVER": "http://127.0.0.1:1"}
        assert Shell(tmp_path, server.environment())("register", "-", stdin=AGENT).code == 0
    shell = Shell(tmp_path, environment)
    intact = shell("doctor", "-o", "json")
    assert (intact.code, severities(intact, "ok")["integrity"]) == (0, None)

    _flip_a_bit(max((data / "index").glob("*.rows"), key=lambda path: path.stat().st_size))
    index = shell("doctor", "-o", "json")
    assert (index.code, severities(index, "danger", "warning")) == (1, {"integrity": "data"})
    assert severities(index, "danger") == {}  # the next start makes it again

    (data / "keys" / "token.pem").write_bytes(b"nothing")
    key = shell("doctor")
    assert key.code == 1
    assert "keys/token.pem and 1 more are damaged" in key.out


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
