"""The commands of the DNS tutorial: from nothing to an agent that is dane-verified and key-verified."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.dns_serve_process import served_zone
from support.markdown import fenced_blocks
from support.server import running_server

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "your-agent-on-dns.md"
ENDLESS = ("waypost dns serve example.test\n", "waypost serve\n")


def _run(script: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """Each line as typed; each must succeed. What each wrote to stdout."""
    marked = "".join(f"{line}\nprintf '\\036'\n" for line in script.strip().splitlines())
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", marked],
        cwd=folder,
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.split("\036")[:-1]


def test_the_commands_of_the_tutorial_lead_from_nothing_to_a_verified_agent(tmp_path: Path) -> None:
    (settings,) = fenced_blocks(TUTORIAL, "toml")
    (agent,) = fenced_blocks(TUTORIAL, "json")
    certificate, *typed = fenced_blocks(TUTORIAL, "sh")
    assert [block for block in typed if block in ENDLESS] == list(ENDLESS)
    (tmp_path / "agent.json").write_text(agent)
    _run(certificate, tmp_path, dict(os.environ))
    data = tmp_path / "data"
    data.mkdir()
    flags = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with served_zone(data) as (names, _), running_server(*flags, data=data) as server:
        (tmp_path / "waypost.toml").write_text(settings.replace("127.0.0.1:5335", names.address))
        script = "".join(block for block in typed if block not in ENDLESS).replace("127.0.0.1:5335", names.address)
        environment = {**server.environment(), "WAYPOST_DATA": str(data)}
        outputs = dict(zip(script.strip().splitlines(), _run(script, tmp_path, environment), strict=True))
    resolved = outputs["waypost resolve alice.example.test"]
    for rung in ("dns-verified", "dane-verified", "key-verified"):
        assert re.search(rf"✓ {rung}", resolved), resolved
    not_yet, broken = (text for line, text in outputs.items() if "||" in line)
    assert "not yet" in not_yet
    assert "not to be trusted" in broken
    assert "✓ dane-verified" not in broken
    recorded = next(block for block in fenced_blocks(TUTORIAL, "console") if block.startswith("agent:"))
    assert _shape(resolved) == _shape(recorded)  # the recording shows what there is to see


def _shape(text: str) -> list[tuple[str, ...]]:
    """The marks and the names of the steps; what goes side by side has no order."""
    return sorted([tuple(line.split()[:2]) for line in text.splitlines() if line.startswith(("  ✓", "  ·"))])
