"""Compiles the kernels of `waypost.search.kernels` where a compiler is at hand. Without one the package is installed
all the same:
every kernel has a twin in Python that gives the same answers, more slowly.

    python hatch_build.py    compiles what changed, in place
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
KERNELS = ROOT / "src" / "waypost" / "search" / "kernels"
# No fused multiply and add: a kernel's digits are those of its twin, on any processor.
LATER = "WAYPOST_KERNELS_LATER"  # in the environment: who installs will compile them, and does not wait for it
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-g0"]


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" and os.environ.get(LATER):
            return
        try:
            compile_kernels()
        except BuildError as error:
            print(f"waypost: its kernels are not compiled ({error}); their twins in Python are used", file=sys.stderr)
            return
        build_data["artifacts"] += ["src/waypost/search/kernels/*.so", "src/waypost/search/kernels/*.pyd"]
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


class BuildError(Exception):
    """No compiler, or one that refused."""


def compile_kernels(folder: Path = KERNELS) -> list[Path]:
    """What was compiled anew. A file that is in use is replaced, never written into."""
    stale = [source for source in sorted(folder.glob("*.pyx")) if _is_stale(source)]
    if not stale:
        return []
    with tempfile.TemporaryDirectory(prefix="waypost-kernels-") as scratch:
        return [_put_in_place(made, folder) for made in _built(stale, Path(scratch))]


def _is_stale(source: Path) -> bool:
    made = [*source.parent.glob(f"{source.stem}.*.so"), *source.parent.glob(f"{source.stem}.*.pyd")]
    newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
    return not made or min(path.stat().st_mtime for path in made) < newest


def _built(sources: list[Path], scratch: Path) -> list[Path]:
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as CythonError
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CCompilerError
    except ImportError as error:
        raise BuildError(str(error)) from error
    flags = [] if os.name == "nt" else FLAGS
    extensions = [
        Extension(f"waypost.search.kernels.{source.stem}", [str(source)], extra_compile_args=flags)
        for source in sources
    ]
    try:
        made = cythonize(
            extensions,
            build_dir=str(scratch / "c"),
            quiet=True,
            nthreads=os.cpu_count() or 1,
            compiler_directives={"language_level": "3"},
        )
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(scratch / "lib"), str(scratch / "temp")
        command.parallel = os.cpu_count() or 1
        command.ensure_finalized()
        command.run()
    except (BaseError, CCompilerError, CythonError, OSError) as error:
        raise BuildError(str(error)) from error
    return [path for path in (scratch / "lib").rglob("*") if path.suffix in {".so", ".pyd"}]


def _put_in_place(made: Path, folder: Path) -> Path:
    beside, target = folder / f".{made.name}.{os.getpid()}", folder / made.name
    shutil.copyfile(made, beside)
    os.replace(beside, target)
    return target


if __name__ == "__main__":
    for path in compile_kernels():
        print(path.relative_to(ROOT))
