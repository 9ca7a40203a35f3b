"""Compile the kernels of `waypost.search.kernels`.

Every kernel has a fallback in Python with the same results. Without a C compiler the package still installs, prints a
warning and uses the slower fallbacks.

    python hatch_build.py                      compile the kernels that changed, in place
    python hatch_build.py --sanitize FOLDER    compile the kernels in FOLDER with ASan and UBSan (see scripts/sanitize)
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
KERNELS = ROOT / "src" / "waypost" / "search" / "kernels"
# In the environment of an editable install: skip the compilation because the installer runs it later (scripts/serve).
COMPILE_LATER = "WAYPOST_KERNELS_LATER"
# In the environment of a build: make the wheel for every system, without compiled kernels (scripts/build).
WITHOUT_KERNELS = "WAYPOST_WITHOUT_KERNELS"
# No fused multiply-add: a kernel's floats must equal those of its fallback on every processor.
_EXACT_FLAGS = ["-ffp-contract=off", "-fno-math-errno"]
FLAGS = ["-O3", *_EXACT_FLAGS, "-fvisibility=hidden", "-g0"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# Python is compiled with -fwrapv, which would hide signed overflow.
SANITIZER_FLAGS = ["-O0", *_EXACT_FLAGS, "-fno-wrapv", "-fno-omit-frame-pointer", "-g1", *SANITIZERS]


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get(WITHOUT_KERNELS) or (version == "editable" and os.environ.get(COMPILE_LATER)):
            return
        try:
            compile_kernels()
        except BuildError as error:
            print(warning(error), file=sys.stderr)
            return
        build_data["artifacts"] += ["src/waypost/search/kernels/*.so", "src/waypost/search/kernels/*.pyd"]
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


class BuildError(Exception):
    """There is no compiler, or it failed."""


def warning(error: BuildError) -> str:
    return (
        f"waypost: WARNING: the search kernels were not compiled ({error}). "
        "Search uses the Python fallback, which gives the same results several times slower. "
        "Install a C compiler and the Python headers, then run `python hatch_build.py`."
    )


def compile_kernels(folder: Path = KERNELS, *, sanitize: bool = False) -> list[Path]:
    """Compile the kernels that are older than their source; return the new files. Raises BuildError.

    A file that is in use is replaced, never written into.
    """
    stale = [source for source in sorted(folder.glob("*.pyx")) if _is_stale(source)]
    if not stale:
        return []
    with tempfile.TemporaryDirectory(prefix="waypost-kernels-") as scratch:
        return [_install(built, folder) for built in _build(stale, Path(scratch), sanitize=sanitize)]


def _is_stale(source: Path) -> bool:
    built = [*source.parent.glob(f"{source.stem}.*.so"), *source.parent.glob(f"{source.stem}.*.pyd")]
    newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
    return not built or min(path.stat().st_mtime for path in built) < newest


def _build(sources: list[Path], scratch: Path, *, sanitize: bool) -> list[Path]:
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as CythonError
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CCompilerError
    except ImportError as error:
        raise BuildError(str(error)) from error
    flags = SANITIZER_FLAGS if sanitize else [] if os.name == "nt" else FLAGS
    extensions = [
        Extension(
            f"waypost.search.kernels.{source.stem}",
            [str(source)],
            extra_compile_args=flags,
            extra_link_args=SANITIZERS if sanitize else [],
        )
        for source in sources
    ]
    try:
        modules = cythonize(
            extensions,
            build_dir=str(scratch / "c"),
            quiet=True,
            nthreads=os.cpu_count() or 1,
            compiler_directives={"language_level": "3"},
        )
        command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(scratch / "lib"), str(scratch / "temp")
        command.parallel = os.cpu_count() or 1
        command.ensure_finalized()
        command.run()
    except (BaseError, CCompilerError, CythonError, OSError) as error:
        raise BuildError(str(error)) from error
    return [path for path in (scratch / "lib").rglob("*") if path.suffix in {".so", ".pyd"}]


def _install(built: Path, folder: Path) -> Path:
    staged, target = folder / f".{built.name}.{os.getpid()}", folder / built.name
    shutil.copyfile(built, staged)
    os.replace(staged, target)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the search kernels that changed.")
    parser.add_argument("--sanitize", metavar="FOLDER", type=Path, help="compile the kernels in FOLDER with sanitizers")
    folder: Path | None = parser.parse_args().sanitize
    try:
        built = compile_kernels(folder or KERNELS, sanitize=folder is not None)
    except BuildError as error:
        print(warning(error), file=sys.stderr)
        return 1
    for path in built:
        print(path.name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
