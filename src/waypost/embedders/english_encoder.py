"""The English sentence model that ships with Waypost: MiniLM, fine-tuned for questions and agents by `scripts/train_model.py`.

Activations are quantized by their largest value, so texts are encoded one by one: in a batch, the vector of a text would depend
on the others. After a change of `data/english` raise VERSION: stored vectors are then recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.embedders.lazy_embedder import Encode, stop_at_exit
from waypost.embedders.session import ModelSession
from waypost.embedders.use_encoder import TokenEncoder
from waypost.embedders.use_model import DIMS, Tokenizer
from waypost.errors import Unavailable

F32 = npt.NDArray[np.float32]
ENGLISH: Final = "english"
VERSION: Final = 2
_BEGIN: Final = 101
_END: Final = 102


class EnglishNetwork:
    """Thread-safe."""

    def __init__(self, graph: bytes) -> None:
        self._session = ModelSession(graph)

    def encode(self, texts: Sequence[Sequence[int]]) -> F32:
        """One unit vector for each list of tokens."""
        return np.array([self.encode_runs(tokens, ())[0] for tokens in texts], np.float32).reshape(len(texts), DIMS)

    def encode_runs(self, tokens: Sequence[int], runs: Sequence[tuple[int, int]]) -> F32:
        """The vector of the whole text, then of each run of its tokens (from, to) in its context. One pass serves them all."""
        line = [_BEGIN, *tokens, _END]
        groups = np.zeros((1 + len(runs), len(line)), np.float32)
        groups[0] = groups[:, 0] = groups[:, -1] = 1
        for group, (start, stop) in zip(groups[1:], runs, strict=True):
            group[start + 1 : stop + 1] = 1
        return self._session.run({"tokens": np.array([line], np.int64), "groups": groups})


@cache
def load_english() -> dict[str, Encode]:
    """The encoder; services in one process share it. Raises Unavailable."""
    stop_at_exit()
    folder = files(__package__) / "data" / ENGLISH
    try:
        with as_file(folder / "tokenizer.model") as path:
            tokenizer = Tokenizer(path)
        network = EnglishNetwork((folder / "model.onnx").read_bytes())
        encode = TokenEncoder(tokenizer, network.encode, DIMS, network.encode_runs, limits.EMBEDDER_ENGLISH_TOKENS)
        encode(["find an agent"])  # so that no query is the first
    except Exception as error:  # onnxruntime raises classes of its own
        raise Unavailable(f"The English sentence model cannot be used: {error}", hint="Reinstall waypost.") from error
    return {ENGLISH: encode}
