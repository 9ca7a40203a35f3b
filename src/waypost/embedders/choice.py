"""Which vectors there are, by the setting `embedder`: `auto`, `none`, `use`, or `onnx:FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from waypost.embedders import projections
from waypost.embedders.lazy_embedder import CachingEmbedder, LazyEmbedder, ModelLoader
from waypost.embedders.onnx import OnnxEncoder, open_onnx_folder
from waypost.embedders.use_encoder import load_encoders
from waypost.embedders.use_model import DISTRIBUTION, UsePackage, find_package
from waypost.errors import ConfigurationError
from waypost.search.vectors.embedding import VectorSpace

AUTO: Final = "auto"
NONE: Final = "none"
USE: Final = "use"
ONNX: Final = "onnx:"

NO_MODEL: Final = (
    "No sentence model is installed: answers come from words and tags alone. "
    "Install waypost with its default dependencies, or name one with --embedder."
)


class EmbedderChoice(NamedTuple):
    """What was chosen. Nothing of it is loaded before `load`, or before somebody asks for a vector."""

    spaces: tuple[VectorSpace, ...] = ()
    warnings: tuple[str, ...] = ()
    loadings: tuple[ModelLoader, ...] = ()

    def load(self) -> None:
        """Begin to load, in the background."""
        for loading in self.loadings:
            loading.start()

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(loading.failure for loading in self.loadings if loading.failure is not None)


def choose_embedder(setting: str, copies: Path | None) -> EmbedderChoice:
    """`copies` is the folder where decoded models are kept; None keeps none. Raises ConfigurationError."""
    if setting == NONE:
        return EmbedderChoice()
    if setting.startswith(ONNX):
        return _onnx(Path(setting.removeprefix(ONNX)).expanduser(), copies)
    if setting not in (AUTO, USE):
        raise ConfigurationError(
            f"{setting!r} is not an embedder.", path="embedder", hint="Say auto, none, use or onnx:FOLDER."
        )
    package = find_package()
    if package is not None:
        return _use(package, copies, (projections.NETWORK, projections.STATIC))
    if setting == USE:
        raise ConfigurationError(
            f"The package {DISTRIBUTION} is not installed.", path="embedder", hint=f"Install {DISTRIBUTION}."
        )
    return EmbedderChoice(warnings=(NO_MODEL,))


def _use(package: UsePackage, copies: Path | None, parts: tuple[str, ...]) -> EmbedderChoice:
    loading = ModelLoader(lambda: load_encoders(package, copies))
    spaces = []
    for part in parts:
        embedder = LazyEmbedder(
            f"use-{package.version}-{part}-{projections.SPACES_VERSION}", projections.DIMS, loading, part
        )
        is_static = part == projections.STATIC
        landmarks = projections.load_quantizer(part)
        spaces.append(VectorSpace(CachingEmbedder(embedder), landmarks, is_quick=is_static, has_examples=not is_static))
    return EmbedderChoice(tuple(spaces), (), (loading,))


def _onnx(path: Path, copies: Path | None) -> EmbedderChoice:
    """The folder's model in place of the network; means of words stay, where the package is there."""
    folder = open_onnx_folder(path)
    loading = ModelLoader(lambda: {projections.NETWORK: OnnxEncoder(folder)})
    embedder = LazyEmbedder(folder.name, folder.manner.dims, loading, projections.NETWORK)
    package = find_package()
    means = _use(package, copies, (projections.STATIC,)) if package is not None else EmbedderChoice()
    space = VectorSpace(CachingEmbedder(embedder), folder.landmarks(), is_quick=False)
    return EmbedderChoice((space, *means.spaces), (), (loading, *means.loadings))
