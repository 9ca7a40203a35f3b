from collections.abc import Mapping, Sequence

def is_plain(text: str, blob: int) -> bool: ...
def named(
    terms: tuple[str, ...],
    longest: dict[str, int],
    spoken: dict[str, tuple[str, ...]],
    phrase_terms: int,
    most: int,
    phrase_worth: float,
    word_worth: float,
) -> dict[str, float]: ...

class Reader:
    def __init__(
        self,
        words: dict[str, str],
        joining: Sequence[str],
        *,
        most_terms: int,
        most_clauses: int,
        least_words: int,
        least_terms: int,
        least_beside: int,
        longest_quote: int,
    ) -> None: ...
    def read(self, text: str) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...], bytearray | None] | None: ...

class SmallWords:
    def __init__(self, owners: Mapping[str, Sequence[int]], *, least_marks: float, mark_share: float) -> None: ...
    def language_of(self, text: str, looked_at: int, unknown: int) -> int: ...
