"""A folder with any ONNX sentence model, as exported for sentence-transformers: an option, with packages of its own.

model.onnx or onnx/model.onnx    the graph: input_ids, attention_mask [, token_type_ids] → vectors of tokens or of texts
tokenizer.json                   of the package `tokenizers`
config.json                      `hidden_size`, the length of a vector
1_Pooling/config.json            optional: the mean of the tokens (else assumed) or the first one
waypost.json                     optional, and stronger: dims, pooling (mean, first), prefix, max_tokens
landmarks.npy                    optional, from `scripts/train_spaces.py --onnx`: for more than some 100,000 agents
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.errors import ConfigurationError, Unavailable
from waypost.search.vectors.embedding import Vectors
from waypost.search.vectors.quantizer import CoarseQuantizer

_GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER: Final = "tokenizer.json"
_PACKAGES: Final = ("onnxruntime", "tokenizers")
_BATCH: Final = 16
_PATH: Final = "embedder"


class OnnxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the model is to be used: `waypost.json`."""

    dims: int = 0
    pooling: Literal["mean", "first"] = "mean"
    prefix: str = ""  # put before every text, where the model was trained with one
    max_tokens: int = limits.EMBEDDER_TOKENS


class _Config(msgspec.Struct):
    hidden_size: int = 0


class _Pooling(msgspec.Struct):
    pooling_mode_cls_token: bool = False


class OnnxFolder(msgspec.Struct, frozen=True):
    """A folder in which everything that is needed is there."""

    path: Path
    graph: Path
    manner: OnnxOptions

    @property
    def name(self) -> str:
        """Changes with what is in the folder."""
        size = self.graph.stat().st_size
        manner = crc32(msgspec.json.encode(self.manner) + (self.path / _TOKENIZER).read_bytes())
        return f"onnx-{size}-{manner:08x}"

    def landmarks(self) -> CoarseQuantizer:
        file = self.path / "landmarks.npy"
        if not file.is_file():
            return CoarseQuantizer.single(self.manner.dims)
        try:
            codes = np.load(file, allow_pickle=False)
        except (OSError, EOFError, ValueError):
            codes = np.empty(0)
        if codes.ndim != 2 or codes.dtype != np.int8 or codes.shape[1] != self.manner.dims:
            raise ConfigurationError(
                f"{file} is not of this model.", path=_PATH, hint="Remove it, or make it anew for this folder."
            )
        return CoarseQuantizer(codes)


def open_onnx_folder(path: Path) -> OnnxFolder:
    """Raises ConfigurationError, which names what is missing."""
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise ConfigurationError(
            f"An ONNX model needs the packages {' and '.join(lacking)}.",
            path=_PATH,
            hint="Install `waypost[onnx]`.",
        )
    graph = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if graph is None:
        raise _missing(path, _GRAPHS[0])
    if not (path / _TOKENIZER).is_file():
        raise _missing(path, _TOKENIZER)
    return OnnxFolder(path, graph, _read_options(path))


def _read_options(path: Path) -> OnnxOptions:
    pooling = _read(path / "1_Pooling" / "config.json", _Pooling)
    usual = OnnxOptions(
        dims=_read(path / "config.json", _Config).hidden_size,
        pooling="first" if pooling.pooling_mode_cls_token else "mean",
    )
    own = path / "waypost.json"
    stated = _read(own, OnnxOptions) if own.is_file() else usual
    manner = msgspec.structs.replace(stated, dims=stated.dims or usual.dims)
    if manner.dims <= 0 or manner.max_tokens <= 0:
        raise ConfigurationError(
            f"{path} does not say how long its vectors are.",
            path=_PATH,
            hint='Put the model\'s config.json beside it, or a waypost.json with {"dims": …}.',
        )
    return manner


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
        hint="Name a folder with model.onnx and tokenizer.json, as in --embedder onnx:FOLDER.",
    )


class OnnxEncoder:
    """As `Embedder.encode` asks. May be used by several threads."""

    def __init__(self, folder: OnnxFolder) -> None:
        """Raises Unavailable when the files are not what they seem."""
        runtime, tokenizers = (importlib.import_module(name) for name in _PACKAGES)
        self._manner = folder.manner
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = runtime.InferenceSession(
                str(folder.graph), sess_options=options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder.path / _TOKENIZER))
            self._tokenizer.enable_truncation(folder.manner.max_tokens)
            self._tokenizer.enable_padding()
            self._inputs = {given.name for given in self._session.get_inputs()}
            length = self._encoded(["a"]).shape[1]
        except Exception as error:  # one of the packages raises classes of its own, the other nothing more special
            raise Unavailable(f"The model in {folder.path} cannot be used: {error}") from error
        if length != self._manner.dims:
            raise Unavailable(
                f"The model in {folder.path} gives vectors of {length} numbers, not of {self._manner.dims}.",
                hint="Correct hidden_size in config.json, or dims in waypost.json.",
            )

    def __call__(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self._manner.dims), np.float32)
        said = [at for at, text in enumerate(texts) if text.strip()]
        said.sort(key=lambda at: len(texts[at]))  # like lengths together: less of a batch is padding
        for start in range(0, len(said), _BATCH):
            part = said[start : start + _BATCH]
            out[part] = self._encoded([self._manner.prefix + texts[at] for at in part])
        return out

    def _encoded(self, texts: list[str]) -> Vectors:
        cut = self._tokenizer.encode_batch(texts)
        given = {
            "input_ids": np.array([each.ids for each in cut], np.int64),
            "attention_mask": np.array([each.attention_mask for each in cut], np.int64),
            "token_type_ids": np.array([each.type_ids for each in cut], np.int64),
        }
        made = self._session.run(None, {name: array for name, array in given.items() if name in self._inputs})
        vectors = self._pooled(made[0], given["attention_mask"])
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def _pooled(self, made: npt.NDArray[Any], mask: npt.NDArray[np.int64]) -> Vectors:
        if made.ndim == 2:  # the graph pools by itself
            return np.array(made, np.float32)
        if self._manner.pooling == "first":
            return np.array(made[:, 0], np.float32)
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((made * weights).sum(1) / np.maximum(weights.sum(1), 1), np.float32)
