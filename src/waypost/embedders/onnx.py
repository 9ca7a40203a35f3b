"""A folder with any ONNX sentence model, as exported for sentence-transformers. Needs the extra `onnx` (`tokenizers`).

model.onnx or onnx/model.onnx    the graph: input_ids, attention_mask [, token_type_ids] → vectors of tokens or of texts
tokenizer.json                   of the package `tokenizers`
config.json                      `hidden_size`, the length of a vector
1_Pooling/config.json            optional: pooling by the mean of the tokens (default) or by the first one
waypost.json                     optional, overrides: dims, pooling (mean, first), prefix, max_tokens
landmarks.npy                    optional, from `scripts/train_spaces.py --onnx`: for more than about 250,000 agents
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.session import ModelSession
from waypost.errors import ConfigurationError, Unavailable
from waypost.search.vectors import Vectors
from waypost.search.vectors.quantizer import CoarseQuantizer

_GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER: Final = "tokenizer.json"
_LANDMARKS: Final = "landmarks.npy"
_BATCH: Final = 16
_PATH: Final = "embedder"


class OnnxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to use the model: `waypost.json`."""

    dims: int = 0
    pooling: Literal["mean", "first"] = "mean"
    prefix: str = ""  # of every text, if the model was trained with one
    max_tokens: int = limits.EMBEDDER_TOKENS


class _Config(msgspec.Struct):
    hidden_size: int = 0


class _Pooling(msgspec.Struct):
    pooling_mode_cls_token: bool = False


class OnnxFolder(msgspec.Struct, frozen=True):
    """A folder with all required files."""

    path: Path
    graph: Path
    options: OnnxOptions

    @property
    def name(self) -> str:
        """Changes with the content of the folder: stored vectors are then recomputed."""
        digest = blake2b(msgspec.json.encode(self.options), digest_size=8)
        weights = sorted(self.graph.parent.glob(f"{self.graph.name}*"))  # large ones are in a file beside the graph
        for path in (*weights, self.path / _TOKENIZER, self.path / _LANDMARKS):
            if path.is_file():
                with path.open("rb") as file:
                    digest.update(file_digest(file, "blake2b").digest())
        return f"onnx-{digest.hexdigest()}"

    def quantizer(self) -> CoarseQuantizer:
        file = self.path / _LANDMARKS
        if not file.is_file():
            return CoarseQuantizer.single(self.options.dims)
        try:
            codes = np.load(file, allow_pickle=False)
        except (OSError, EOFError, ValueError):
            codes = np.empty(0)
        if codes.ndim != 2 or codes.dtype != np.int8 or codes.shape[1] != self.options.dims:
            raise ConfigurationError(
                f"{file} does not belong to this model.",
                path=_PATH,
                hint="Remove it, or make it again for this folder.",
            )
        return CoarseQuantizer(codes)


def open_onnx_folder(path: Path) -> OnnxFolder:
    """Raises ConfigurationError, which names what is missing."""
    if find_spec("tokenizers") is None:
        raise ConfigurationError(
            "A model of one's own needs the package tokenizers.", path=_PATH, hint="Install `waypost[onnx]`."
        )
    graph = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if graph is None:
        raise _missing(path, _GRAPHS[0])
    if not (path / _TOKENIZER).is_file():
        raise _missing(path, _TOKENIZER)
    return OnnxFolder(path, graph, _read_options(path))


def _read_options(path: Path) -> OnnxOptions:
    pooling = _read(path / "1_Pooling" / "config.json", _Pooling)
    defaults = OnnxOptions(
        dims=_read(path / "config.json", _Config).hidden_size,
        pooling="first" if pooling.pooling_mode_cls_token else "mean",
    )
    own = path / "waypost.json"
    stated = _read(own, OnnxOptions) if own.is_file() else defaults
    options = msgspec.structs.replace(stated, dims=stated.dims or defaults.dims)
    if options.dims <= 0 or options.max_tokens <= 0:
        raise ConfigurationError(
            f"{path} does not state the length of its vectors.",
            path=_PATH,
            hint='Add the model\'s config.json, or a waypost.json with {"dims": …}.',
        )
    return options


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}", path=_PATH) from error


def _missing(path: Path, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"There is no {name} in {path}.",
        path=_PATH,
        hint="Use a folder with model.onnx and tokenizer.json: --embedder onnx:FOLDER.",
    )


class OnnxEncoder:
    """`Embedder.encode` for an ONNX model. Thread-safe."""

    def __init__(self, folder: OnnxFolder) -> None:
        """Raises Unavailable if the files are not usable."""
        from tokenizers import Tokenizer

        self._options = folder.options
        try:
            self._session = ModelSession(folder.graph)
            self._tokenizer = Tokenizer.from_file(str(folder.path / _TOKENIZER))
            self._tokenizer.enable_truncation(folder.options.max_tokens)
            self._tokenizer.enable_padding()
            length = self._encode(["a"]).shape[1]
        except Exception as error:  # the packages raise classes of their own, or plain Exception
            raise Unavailable(f"The model in {folder.path} cannot be used: {error}") from error
        if length != self._options.dims:
            raise Unavailable(
                f"The model in {folder.path} returns vectors of {length} numbers, not of {self._options.dims}.",
                hint="Correct hidden_size in config.json, or dims in waypost.json.",
            )

    def __call__(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self._options.dims), np.float32)
        filled = [at for at, text in enumerate(texts) if text.strip()]
        filled.sort(key=lambda at: len(texts[at]))  # similar lengths together: less padding
        for start in range(0, len(filled), _BATCH):
            part = filled[start : start + _BATCH]
            out[part] = self._encode([self._options.prefix + texts[at] for at in part])
        return out

    def has_word(self, word: str) -> bool:
        return len(self._tokenizer.encode(word, add_special_tokens=False).ids) == 1

    def _encode(self, texts: list[str]) -> Vectors:
        encodings = self._tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": np.array([each.ids for each in encodings], np.int64),
            "attention_mask": np.array([each.attention_mask for each in encodings], np.int64),
            "token_type_ids": np.array([each.type_ids for each in encodings], np.int64),
        }
        vectors = self._pool(self._session.run(inputs), inputs["attention_mask"])
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def _pool(self, output: npt.NDArray[Any], mask: npt.NDArray[np.int64]) -> Vectors:
        if output.ndim == 2:  # the graph pools itself
            return np.array(output, np.float32)
        if self._options.pooling == "first":
            return np.array(output[:, 0], np.float32)
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((output * weights).sum(1) / np.maximum(weights.sum(1), 1), np.float32)
