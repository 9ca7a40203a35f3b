"""Backups: one archive (tar, gzip) of the data folder, made while the service runs, and restored into an empty folder.

The first member is the manifest: versions, the digest of every other member, and the digest of the agents at one revision.
Databases are copied by SQLite's backup API, so that each is one consistent state. Derived files (the search index, computed
models) are not included: the next start makes them again.

An archive contains private keys and the admin token. So it is a private file, and there is no way to get one over HTTP: whoever
may make a backup can read the data folder anyway.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from waypost import __version__, limits
from waypost.errors import ConfigurationError, DamagedStore, InvalidDocument, InvalidRequest, StorageFull
from waypost.files import make_folder, open_private
from waypost.model.times import to_rfc3339
from waypost.settings import DATABASES, SMALL_FILES
from waypost.stores.sqlite.database import fault_of, open_error
from waypost.stores.sqlite.integrity import AgentSummary, check_database, copy_database, summarize

FORMAT = 1
_MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20
_COMPRESSION = 1  # documents compress well at any level, and a backup should not take a core from the service for long
_NAME = re.compile(r"[A-Za-z0-9_@:-][A-Za-z0-9._@:-]{0,254}(?:/[A-Za-z0-9_@:-][A-Za-z0-9._@:-]{0,254}){0,4}\Z")


class BackupMember(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    waypost: str
    made_at: str
    agents: int
    revision: int
    audit_entries: int
    digest: str
    members: tuple[BackupMember, ...]

    @property
    def summary(self) -> AgentSummary:
        return AgentSummary(
            agents=self.agents, revision=self.revision, audit_entries=self.audit_entries, digest=self.digest
        )


# --- Backup ---------------------------------------------------------------------------------------


def make_backup(data: Path, target: Path) -> BackupManifest:
    """Write a backup of the data folder; an existing file is replaced when the new one is complete. Every copied database is
    checked first, so that damaged data never replaces a good backup."""
    if not (data / DATABASES[0]).is_file():
        raise ConfigurationError(
            f"There is no {DATABASES[0]} in {data}.",
            path="data",
            hint="Name the data folder of the service with --data. A service with `store = memory` keeps nothing.",
        )
    if target.exists() and not target.is_file():  # a device would be replaced by the file
        raise ConfigurationError(
            f"{target} is not a file, so it is not replaced by the backup.", path="FILE", hint="Name a file."
        )
    with _private_folder(target.absolute().parent, ".waypost-backup-") as work:
        try:
            files = [*_copy_databases(data, work), *_copy_small_files(data, work)]
            manifest = _make_manifest(files, work)
            archive = work / ".archive"
            with open_private(archive) as file:
                _write_archive(file, manifest, files)
                file.flush()
                os.fsync(file.fileno())
            archive.replace(target)
        except OSError as error:
            raise _disk_error(error, target) from None
    return manifest


def _copy_databases(data: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """The records first: whatever they refer to is copied after them, and is there."""
    for name in DATABASES:
        if not (data / name).exists():
            continue
        try:
            copy_database(data / name, work / name)
        except sqlite3.Error as error:
            raise (
                _full_disk(work.parent) if fault_of(error) == "full" else open_error(error, str(data / name))
            ) from None
        problems = check_database(work / name)
        if problems:
            first = problems[0]
            raise DamagedStore(
                f"The data folder is damaged: {first.file}, {first.where}: {first.message}. No backup was made.",
                hint="`waypost check` lists all damage. Restore an earlier backup; keep this folder until that works.",
            )
        yield name, work / name


def _copy_small_files(data: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """Copied as well: the service may replace one while the archive is written."""
    for entry in SMALL_FILES:
        path = data / entry
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = each.relative_to(data).as_posix()
            if each.is_file() and not each.is_symlink() and _NAME.match(name):  # not the hidden, temporary ones
                make_folder((work / name).parent)
                shutil.copyfile(each, work / name)
                yield name, work / name


def _make_manifest(files: list[tuple[str, Path]], work: Path) -> BackupManifest:
    summary = summarize(work / DATABASES[0])
    return BackupManifest(
        format=FORMAT,
        waypost=__version__,
        made_at=to_rfc3339(time.time()),
        agents=summary.agents,
        revision=summary.revision,
        audit_entries=summary.audit_entries,
        digest=summary.digest,
        members=tuple(_describe(name, path) for name, path in files),
    )


def _describe(name: str, path: Path) -> BackupMember:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return BackupMember(name=name, bytes=file.tell(), sha256=digest)


def _write_archive(file: IO[bytes], manifest: BackupManifest, files: list[tuple[str, Path]]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_COMPRESSION) as archive:
        content = msgspec.json.format(msgspec.json.encode(manifest))
        archive.addfile(_tar_info(_MANIFEST, len(content)), io.BytesIO(content))
        for member, (name, path) in zip(manifest.members, files, strict=True):
            with path.open("rb") as source:
                archive.addfile(_tar_info(name, member.bytes), source)


def _tar_info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, int(time.time())
    return info


# --- Restore --------------------------------------------------------------------------------------


def restore_backup(source: Path, data: Path) -> BackupManifest:
    """Restore a backup into an empty or missing folder. Every digest is verified before anything is written; the files appear
    in the folder when all of them are complete."""
    _require_empty(data)
    for _ in _read_members(source):
        pass
    try:
        make_folder(data)
        data.chmod(0o700)
        with _private_folder(data, ".restore-") as work:
            manifest = _extract(source, work)
            if summarize(work / DATABASES[0]) != manifest.summary:
                raise _invalid(source, "its agents do not match the digest in the manifest")
            _move_into_place(work, data, manifest)
    except OSError as error:
        raise _disk_error(error, data) from None
    return manifest


def read_manifest(source: Path) -> BackupManifest:
    """The manifest alone. The other members are not verified."""
    with _open_archive(source) as (archive, _):
        return _parse_manifest(source, archive)


def _require_empty(data: Path) -> None:
    try:
        is_used = data.exists() and any(data.iterdir())
    except OSError as error:
        raise ConfigurationError(f"{data} cannot be used: {error.strerror}.", path="data") from None
    if is_used:
        raise ConfigurationError(
            f"{data} is not empty.",
            path="data",
            hint="Name an empty or a new folder with --data; move the old one away.",
        )


def _extract(source: Path, work: Path) -> BackupManifest:
    for member, content in _read_members(source):
        path = work / member.name
        make_folder(path.parent)
        with open_private(path) as file:
            for chunk in content:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    return read_manifest(source)


def _move_into_place(work: Path, data: Path, manifest: BackupManifest) -> None:
    """The records last: a start before that would find none, and an interrupted restore is seen by the folder `work`."""
    entries = dict.fromkeys(member.name.split("/")[0] for member in reversed(manifest.members))
    for entry in entries:
        (work / entry).rename(data / entry)
    for folder in (data, data.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read_members(source: Path) -> Iterator[tuple[BackupMember, Iterator[bytes]]]:
    """Each member with its content, verified when the content was read to its end or the next member is asked for."""
    with _open_archive(source) as (archive, stream):
        manifest = _parse_manifest(source, archive)
        for member in manifest.members:
            info = archive.next()
            if info is None or info.name != member.name or not info.isreg() or info.size != member.bytes:
                found = "nothing" if info is None else repr(info.name[:100])
                raise _invalid(source, f"{member.name!r} was expected, {found} was found")
            content = _read_content(source, archive, info, member)
            yield member, content
            for _ in content:
                pass
        if archive.next() is not None:
            raise _invalid(source, "it has more members than its manifest names")
        # gzip compares its checksum at the end of the stream, and a tar file ends with padding that no member reads.
        if stream.read(_CHUNK_BYTES).strip(b"\0") or stream.read(1):
            raise _invalid(source, "something follows its last member")


def _read_content(
    source: Path, archive: tarfile.TarFile, info: tarfile.TarInfo, member: BackupMember
) -> Iterator[bytes]:
    file, digest = archive.extractfile(info), hashlib.sha256()
    while file is not None and (chunk := file.read(_CHUNK_BYTES)):
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != member.sha256:
        raise _invalid(source, f"{member.name} does not match its digest")


@contextlib.contextmanager
def _open_archive(source: Path) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    try:
        with gzip.open(source) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            yield archive, stream
    except FileNotFoundError:
        raise InvalidRequest(
            f"{source} cannot be read: No such file or directory.",
            path="FILE",
            hint="Name a file that `waypost backup FILE` wrote.",
        ) from None
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise _invalid(source, f"it cannot be read ({error})") from None


def _parse_manifest(source: Path, archive: tarfile.TarFile) -> BackupManifest:
    info = archive.next()
    if info is None or info.name != _MANIFEST or not info.isreg() or info.size > limits.BACKUP_MANIFEST_BYTES:
        raise _invalid(source, "it does not start with a manifest")
    file = archive.extractfile(info)
    content = b"" if file is None else file.read()
    try:
        version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))
        if version != msgspec.Raw(str(FORMAT).encode()):
            raise _invalid(
                source,
                f"its format is {bytes(version).decode('ascii', 'replace')[:20]}, and this release reads {FORMAT}",
                "Install the release that made it, or a newer one.",
            )
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _invalid(source, f"its manifest is invalid ({error})") from None
    _check_names(source, manifest)
    return manifest


def _check_names(source: Path, manifest: BackupManifest) -> None:
    """Only names that a backup can have: nothing outside of the folder, nothing that this release does not know."""
    names = [member.name for member in manifest.members]
    known = {*DATABASES, *SMALL_FILES}
    for name in names:
        if (
            not _NAME.match(name)
            or name.split("/")[0] not in known
            or (name in DATABASES) != (name.split("/")[0] in DATABASES)
        ):
            raise _invalid(source, f"it has an unknown member {name[:100]!r}", "Install the release that made it.")
    if len(set(names)) != len(names) or DATABASES[0] not in names:
        raise _invalid(source, f"{DATABASES[0]} is missing from it, or a member is named twice")


# --- Both -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _private_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder with mode 0700, on the disk of its parent."""
    try:
        make_folder(parent)
        work = Path(tempfile.mkdtemp(prefix=f"{prefix}{secrets.token_hex(2)}", dir=parent))
    except OSError as error:
        raise _disk_error(error, parent) from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _disk_error(error: OSError, path: Path) -> ConfigurationError | StorageFull:
    if fault_of(error) == "full":
        return _full_disk(path)
    return ConfigurationError(
        f"{path} cannot be written: {error.strerror or error}.",
        path=str(error.filename or path),
        hint="Choose another place.",
    )


def _full_disk(path: Path) -> StorageFull:
    return StorageFull(f"The disk of {path} is full; nothing was written.", hint="Free some space and try again.")


def _invalid(
    source: Path, reason: str, hint: str = "Use another backup; this one is damaged or incomplete."
) -> InvalidDocument:
    return InvalidDocument(f"{source} is not a usable backup: {reason}.", path=source.name, hint=hint)
