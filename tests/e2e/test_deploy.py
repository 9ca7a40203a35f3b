"""The files in deploy/: valid, and true to what the service offers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.dockerfile import Image, build, make_root
from support.postgresql import running_postgresql
from support.service import profile, service
from waypost.settings import SERVICE_SETTINGS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(?:waypost|process|python)_[a-z_]+\b|\bup\b")
PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None and "CI" not in os.environ, reason="promtool is not installed"
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def dashboard() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana-dashboard.json").read_text()))


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


# --- Prometheus and Grafana -----------------------------------------------------------------------


async def read_metric_names(data: Path, **settings: Any) -> set[str]:
    async with service(data, health_checks=None, **settings) as bench:
        admin = bench.admin()
        await admin.post(
            "/api/v1/agents", json=profile(bindings=[{"protocol": "https", "endpoint": "https://127.0.0.1/"}])
        )
        await admin.post("/profile/v1/discover", json={"query": "facts"})
        return {line.partition("{")[0].partition(" ")[0] for line in (await admin.get("/metrics")).text.splitlines()}


async def test_every_metric_in_dashboard_and_alerts_exists(tmp_path: Path) -> None:
    alone = await read_metric_names(tmp_path / "alone")
    with running_postgresql() as server:
        node = await read_metric_names(tmp_path / "node", store=server.create_database())
    variables = [each["definition"] for each in dashboard()["templating"]["list"] if "definition" in each]
    alerts = re.sub(r"(?m)^ *(?:summary|description): .*$", "", (DEPLOY / "waypost-alerts.yaml").read_text())
    texts = [*dashboard_queries(), *variables, alerts]
    named = {name for text in texts for name in METRIC.findall(text)}
    of_clusters = {name for name in named if name.startswith("waypost_cluster_")}
    assert len(named - of_clusters) > 15
    assert named - of_clusters - {"up"} <= alone
    assert of_clusters
    assert of_clusters <= node


def test_a_dashboard_has_unique_panels_that_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@PROMTOOL
def test_prometheus_accepts_alerts_and_queries(tmp_path: Path) -> None:
    checked = run("promtool", "check", "rules", str(DEPLOY / "waypost-alerts.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    config = run("promtool", "check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))
    assert config.returncode == 0, config.stdout + config.stderr
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(dashboard_queries())
    ]
    queries = tmp_path / "queries.yaml"
    queries.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = run("promtool", "check", "rules", str(queries))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@PROMTOOL
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    cases = {
        "rule_files": [str(DEPLOY / "waypost-alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": 'up{job="waypost",instance="a"}', "values": "1 1 0x10"},
                    {"series": 'waypost_requests_total{instance="a",status="200"}', "values": "0+600x20"},
                    {"series": 'waypost_requests_total{instance="a",status="500"}', "values": "0+60x20"},
                    {"series": 'waypost_requests_total{instance="b",status="200"}', "values": "0+600x20"},
                    {"series": 'waypost_requests_total{instance="b",status="503"}', "values": "0+60x20"},
                    {
                        "series": 'waypost_requests_shed_total{instance="b",reason="storage_full"}',
                        "values": "0+1x20",
                    },
                ],
                "alert_rule_test": [
                    {"eval_time": "10m", "alertname": name, "exp_alerts": [{"exp_labels": labels}]}
                    for name, labels in (
                        ("WaypostDown", {"severity": "critical", "job": "waypost", "instance": "a"}),
                        ("WaypostServerErrors", {"severity": "critical", "instance": "a"}),
                        ("WaypostStorageFull", {"severity": "critical", "instance": "b", "reason": "storage_full"}),
                    )
                ],
            }
        ],
    }
    for rule in cases["tests"][0]["alert_rule_test"]:  # type: ignore[index]
        rule["exp_alerts"][0]["exp_annotations"] = _annotations(rule["alertname"], rule["exp_alerts"][0]["exp_labels"])
    path = tmp_path / "cases.yaml"
    path.write_text(json.dumps(cases))
    tested = run("promtool", "test", "rules", str(path))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _annotations(alert: str, labels: dict[str, str]) -> dict[str, str]:
    text = (DEPLOY / "waypost-alerts.yaml").read_text().partition(f"- alert: {alert}\n")[2]
    found = dict(re.findall(r'^ {10}(summary|description): "(.*)"$', text, re.MULTILINE)[:2])
    return {name: value.replace("{{ $labels.instance }}", labels["instance"]) for name, value in found.items()}


# --- systemd, Docker, compose ---------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ, reason="systemd is not installed"
)
def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "waypost.service"
    unit.write_text((DEPLOY / "waypost.service").read_text().replace("/opt/waypost/bin/waypost", sys.executable))
    verified = run("systemd-analyze", "verify", str(unit))
    assert (verified.returncode, verified.stderr) == (0, "")
    exposure = run("systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit))
    assert exposure.returncode == 0, exposure.stdout[-300:]


def test_environment_variables_in_deploy_are_settings() -> None:
    known = {setting.variable for setting in SERVICE_SETTINGS}
    for name in ("Dockerfile", "compose.yaml", "compose.cluster.yaml", "kubernetes/nodes.yaml", "waypost.service"):
        assert set(re.findall(r"\bWAYPOST_[A-Z_]+\b", (DEPLOY / name).read_text())) <= known


def test_the_versions_in_deploy_are_those_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("compose.yaml", "compose.cluster.yaml", "kubernetes/nodes.yaml"):
        assert f"image: waypost:{version}\n" in (DEPLOY / name).read_text()
    assert f"newTag: {version}\n" in (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()


def test_an_image_contains_only_what_the_ignore_file_lets_in() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for name in (word for line in copied for word in line.split()):
        assert (ROOT / name).exists()
        assert f"!{name.partition('/')[0]}" in ignored


@contextmanager
def container(image: Image) -> Iterator[subprocess.Popen[str]]:
    """The command of an image as its user, in namespaces of its own: a read-only root, writable volumes, loopback alone."""
    steps = ["ip link set lo up", f"mount --bind {image.root} {image.root}", f"mount -o remount,bind,ro {image.root}"]
    steps += [f"mount -t tmpfs -o mode=1777 tmpfs {image.root}{volume}" for volume in (*image.volumes, "/tmp")]
    steps += [f"mount -t proc proc {image.root}/proc"]
    steps += [f"exec {shlex.join(_in_root(image, [*image.entrypoint, *image.command]))}"]
    with subprocess.Popen(
        ["/usr/bin/unshare", "--mount", "--net", "/bin/sh", "-ec", "\n".join(steps)],
        env=_environment(image),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _in_root(image: Image, command: list[str]) -> list[str]:
    return ["/usr/sbin/chroot", f"--userspec={image.user}:{image.user}", str(image.root), *command]


def _environment(image: Image) -> dict[str, str]:
    more = {"PATH": f"{image.environment['PATH']}:/usr/sbin:/sbin", "WAYPOST_EMBEDDER": "none"}
    return {**image.environment, **more, "WAYPOST_HEALTH_CHECKS": "false"}


def health(image: Image, *prefix: str) -> int:
    """The exit code of the health check."""
    command = [*prefix, *_in_root(image, image.health_check)]
    return subprocess.run(
        command, check=False, env=_environment(image), timeout=60, stderr=subprocess.DEVNULL
    ).returncode


@pytest.mark.long
@pytest.mark.skipif(
    (shutil.which("debootstrap") is None or os.getuid() != 0) and "CI" not in os.environ,
    reason="needs debootstrap and root",
)
def test_the_steps_of_the_dockerfile_make_a_service_that_runs_read_only(tmp_path: Path) -> None:
    """No image is pulled: the steps run in roots of the same Debian release."""
    image = build(DEPLOY / "Dockerfile", ROOT, make_root(tmp_path), tmp_path)
    assert (image.user, image.volumes) == ("10001", ["/var/lib/waypost"])
    assert not list(image.root.glob("opt/waypost/lib/python3*/site-packages/pip")), "no installer in the result"
    assert list(image.root.glob("opt/waypost/lib/python3*/site-packages/waypost/search/kernels/*.so"))
    with container(image) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waypost ready http://127.0.0.1:8440\n"
        assert health(image, "/usr/bin/nsenter", f"--target={process.pid}", "--mount", "--net") == 0
    assert health(image, "/usr/bin/unshare", "--net") == 1
