from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

class Tokenizer:
    def __init__(self, vocabulary: tuple[list[str], npt.NDArray[np.float32], bytes]) -> None: ...
    def encode(self, text: str, most: int) -> list[int]: ...

def run_of(part: Sequence[int], pieces: Sequence[int], most: int) -> tuple[int, int] | None: ...
