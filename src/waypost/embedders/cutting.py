"""What cuts a text into the pieces of a vocabulary: compiled, or in Python where nothing was compiled."""

try:
    from waypost.compiled.pieces import Tokenizer as Tokenizer
    from waypost.compiled.pieces import run_of as run_of
except ImportError:
    from waypost.embedders.plain_pieces import Tokenizer as Tokenizer  # type: ignore[assignment]
    from waypost.embedders.plain_pieces import run_of as run_of
