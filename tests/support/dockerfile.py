"""Runs the steps of a Dockerfile in folders made by debootstrap, where no image can be pulled.

Only what deploy/Dockerfile uses is understood: FROM, RUN, COPY, WORKDIR, ENV and the settings of the result. Each FROM
starts with a copy of the same root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

RELEASE = "bookworm"
_STEP_SECONDS = 900
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Image:
    """A stage: its root folder, and what its container would start with."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    folder: str = "/"
    user: str = "0"
    volumes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health_check: list[str] = field(default_factory=list)


def make_root(folder: Path, release: str = RELEASE, *packages: str) -> Path:
    """A minimal Debian, as the slim image is, and more packages of it."""
    root = folder / "base"
    included = [f"--include={','.join(packages)}"] if packages else []
    command = ["debootstrap", "--variant=minbase", *included, release, str(root), _mirror()]
    subprocess.run(command, check=True, timeout=_STEP_SECONDS, stdout=subprocess.DEVNULL)
    return root


def _mirror() -> str:
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return next(address for address in found if "security" not in address)


def build(dockerfile: Path, context: Path, base: Path, folder: Path) -> Image:
    """The last stage of a Dockerfile."""
    stages: dict[str, Image] = {}
    image = Image(base)
    for number, line in enumerate(_lines(dockerfile)):
        instruction, _, rest = line.partition(" ")
        words = shlex.split(rest)
        if instruction == "FROM":
            assert words[0].startswith(f"debian:{RELEASE}")
            image = Image(folder / f"stage-{len(stages)}")
            stages[words[2] if len(words) > 2 else str(number)] = image
            subprocess.run(["cp", "-a", str(base), str(image.root)], check=True, timeout=_STEP_SECONDS)
        elif instruction == "RUN":
            run_step(image, rest)
        elif instruction == "COPY":
            _copy(image, words, context, stages)
        elif instruction == "WORKDIR":
            image.folder = words[0]
            (image.root / words[0].lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "ENV":
            name, _, value = words[0].partition("=")
            image.environment[name] = value
        else:
            _configure(image, instruction, rest)
    return image


def _lines(dockerfile: Path) -> Iterator[str]:
    for line in dockerfile.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            assert not line.endswith("\\"), "write each step on one line"
            yield line


def _configure(image: Image, instruction: str, rest: str) -> None:
    if instruction == "USER":
        image.user = rest
    elif instruction == "VOLUME":
        image.volumes.append(rest)
    elif instruction == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif instruction == "CMD":
        image.command = json.loads(rest)
    elif instruction == "HEALTHCHECK":
        image.health_check = json.loads(rest.partition("CMD ")[2])
    else:
        assert instruction in ("EXPOSE", "STOPSIGNAL"), instruction


def _copy(image: Image, words: list[str], context: Path, stages: dict[str, Image]) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].root
    *names, place = words
    target = image.root / os.path.join(image.folder, place).lstrip("/")
    for name in names:
        path = source / name.lstrip("/")
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so") if source is context else None  # .dockerignore
            shutil.copytree(path, target, symlinks=True, ignore=ignored)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def run_step(image: Image, command: str) -> None:
    with _prepared(image.root) as environment:
        shell = ["chroot", str(image.root), "sh", "-ec", f"cd {shlex.quote(image.folder)}; {command}"]
        given = {**environment, **image.environment}
        ran = subprocess.run(shell, check=False, env=given, capture_output=True, text=True, timeout=_STEP_SECONDS)
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"


@contextmanager
def _prepared(root: Path) -> Iterator[dict[str, str]]:
    """The package sources of this machine, while a step runs: those of apt and those of pip."""
    environment = {"DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
    listed = subprocess.run(["pip", "config", "list"], check=True, capture_output=True, text=True, timeout=60).stdout
    settings = [line.partition("=") for line in listed.splitlines() if line.startswith(("global.", ":env:."))]
    for name, _, value in settings:
        key = name.removeprefix("global.").removeprefix(":env:.")
        environment[f"PIP_{key.upper().replace('-', '_')}"] = value.strip("'\"")
    folders = [Path(word) for word in environment.get("PIP_FIND_LINKS", "").split() if Path(word).is_dir()]
    mounted = [Path("/proc"), *folders]
    copied = [
        Path("/etc/resolv.conf"),
        Path("/etc/hosts"),
        *([Path(cert)] if (cert := environment.get("PIP_CERT")) else []),
    ]
    for path in copied:
        (root / path.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to("/"))
    try:
        for path in mounted:
            (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--rbind", str(path), str(root / path.relative_to("/"))], check=True, timeout=60)
        yield environment
    finally:
        for path in reversed(mounted):
            place = str(root / path.relative_to("/"))
            subprocess.run(["umount", "--recursive", "--lazy", place], check=False, timeout=60)
