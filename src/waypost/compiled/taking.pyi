from collections.abc import Iterable
from typing import Final

ODD: Final = 0
PLAIN: Final = 1
PLAIN_BEYOND_ASCII: Final = 2

def plainness(data: bytes, depth: int, items: int, digits: int) -> int: ...

class Cues:
    def __init__(self, words: Iterable[str]) -> None: ...
    def are_in(self, text: str) -> bool: ...
