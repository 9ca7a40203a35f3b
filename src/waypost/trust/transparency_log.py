"""A transparency log: the hash tree of RFC 6962 and 9162, its storage in tiles, and signed checkpoints.

The tree has roots, proofs that an entry is in a tree, and proofs that a tree only grew. A proof is made in two steps:
which spans of leaves it consists of, and then the hash of each span. Leaves are counted from 0.

Hashes are stored in tiles of 256, so that the tree grows by one leaf in constant time and a proof needs few reads. A
tile of level 0 holds the hashes of 256 leaves, one of level n + 1 the roots of 256 tiles of level n. Only full tiles
are stored; a partial tile consists of the newest leaves, or of the roots of the full tiles below it.

A checkpoint is origin, size and root of a log in three lines (C2SP tlog-checkpoint), in a signed note (C2SP
signed-note) with an Ed25519 key. A saved checkpoint can prove later that the log was rewritten.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waypost import limits
from waypost.errors import BadSignature, InvalidDocument, InvalidKey
from waypost.responses.trust import AuditTrailPage
from waypost.trust.document_signatures import canonicalize
from waypost.trust.keys import ed25519

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
_LEAF: Final = b"\x00"  # distinct prefixes: a leaf hash is never a node hash
_NODE: Final = b"\x01"

Span = tuple[int, int]  # first leaf, and the leaf after the last
Peak = tuple[int, int]  # a full subtree: its height, and its index among those of this height


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(_LEAF + data).digest()


def entry_leaves(page: AuditTrailPage) -> dict[int, bytes]:
    """The leaf hash of each entry by its number, computed from the page as received."""
    return {entry["number"]: leaf_hash(canonicalize(entry)) for entry in page.document["entries"]}


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes (or over the roots of full subtrees of equal height)."""
    if not hashes:
        return EMPTY_ROOT
    row = list(hashes)
    while len(row) > 1:  # level by level; an odd last hash moves up unchanged
        odd = [row[-1]] if len(row) % 2 else []
        row = [node_hash(left, right) for left, right in zip(row[::2], row[1::2], strict=False)] + odd
    return row[0]


def split_into_peaks(span: Span) -> list[Peak]:
    """Return the full subtrees of a span that starts at a multiple of its largest one; highest first."""
    start, end = span
    found = []
    while start < end:
        height = (end - start).bit_length() - 1
        found.append((height, start >> height))
        start += 1 << height
    return found


def fold_peaks(hashes: Sequence[bytes]) -> bytes:
    """Return the root over peaks, highest first."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


# --- Proofs ---------------------------------------------------------------------------------------


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_spans(index: int, size: int) -> list[Span]:
    """Return the spans whose hashes lead from a leaf to the root of a tree of `size`, from the leaf upwards."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    spans: list[Span] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    return spans[::-1]


def consistency_spans(first: int, second: int) -> list[Span]:
    """Return the spans whose hashes prove that a tree of `second` leaves begins with the tree of `first`."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves does not contain one of {first}")
    if first in (0, second):
        return []
    spans: list[Span] = []
    start, end = 0, second
    while end != first:
        middle = start + _split(end - start)
        if first <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    # The verifier has the old root; if that is a subtree of the new tree, the proof leaves it out.
    return spans[::-1] if start == 0 else [(start, end), *spans[::-1]]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether the proof leads from this leaf hash to the root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes(leaf, root, *proof):
        return False
    place, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(step, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Return whether the proof shows that the second tree begins with all of the first (RFC 9162, 2.1.4.2)."""
    if first == 0 and first_root != EMPTY_ROOT:
        return False
    if first == second:
        return not proof and first_root == second_root
    if not 0 <= first < second or not _are_hashes(first_root, second_root, *proof):
        return False
    if first == 0:
        return not proof
    steps = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    return bool(steps) and _recompute_roots(first, second, steps) == (first_root, second_root)


def _recompute_roots(first: int, second: int, steps: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return both roots that the steps lead to; None if there are too many or too few steps."""
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return None
        if place & 1 or place == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, step)
        place, last = place >> 1, last >> 1
    return (old, new) if last == 0 else None


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)


# --- Tiles ----------------------------------------------------------------------------------------

TILE_WIDTH: Final = 256
_HEIGHT: Final = 8  # of the full tree over one tile


class Tile(NamedTuple):
    """A full tile."""

    level: int
    number: int
    root: bytes
    hashes: bytes  # concatenated


class TileFrontier:
    """The partial tile of each level: all that a growing tree needs in memory."""

    def __init__(self, size: int = 0, rows: Sequence[Sequence[bytes]] = ()) -> None:
        self.size = size
        self._rows = [list(row) for row in rows] or [[]]
        if [len(row) for row in self._rows] != row_lengths(size):
            raise ValueError(f"these are not the partial tiles of a tree of {size} leaves")

    def append(self, leaf: bytes) -> list[Tile]:
        """Append a leaf hash; return the tiles that it fills, lowest first."""
        self._rows[0].append(leaf)
        self.size += 1
        return self._fill() if len(self._rows[0]) == TILE_WIDTH else []

    def _fill(self) -> list[Tile]:
        filled: list[Tile] = []
        level = 0
        while len(self._rows[level]) == TILE_WIDTH:
            number = (self.size >> _HEIGHT * (level + 1)) - 1
            tile = Tile(level, number, merkle_root(self._rows[level]), b"".join(self._rows[level]))
            filled.append(tile)
            self._rows[level] = []
            if level + 1 == len(self._rows):
                self._rows.append([])
            self._rows[level + 1].append(tile.root)
            level += 1
        return filled

    def row(self, level: int) -> bytes:
        """Return the hashes of the partial tile of a level."""
        return b"".join(self._rows[level])

    def root(self) -> bytes:
        found = []
        for row in reversed(self._rows):
            found += [
                merkle_root(row[place << height : (place + 1) << height])
                for height, place in split_into_peaks((0, len(row)))
            ]
        return fold_peaks(found)


def row_lengths(size: int) -> list[int]:
    """Return the number of hashes in the partial tile of each level of a tree with `size` leaves."""
    lengths = [size % TILE_WIDTH]
    while size := size >> _HEIGHT:
        lengths.append(size % TILE_WIDTH)
    return lengths


def span_hash(span: Span, read_tile: Callable[[int, int], bytes]) -> bytes:
    """Return the hash of a span of leaves. `read_tile` returns the hashes of a full or partial tile by level and
    number."""
    return fold_peaks([_peak_hash(peak, read_tile) for peak in split_into_peaks(span)])


def _peak_hash(peak: Peak, read_tile: Callable[[int, int], bytes]) -> bytes:
    height, place = peak
    level, inner = divmod(height, _HEIGHT)
    number, first = divmod(place << inner, TILE_WIDTH)
    hashes = read_tile(level, number)[first * HASH_BYTES : (first + (1 << inner)) * HASH_BYTES]
    if len(hashes) != HASH_BYTES << inner:
        raise ValueError(f"tile {number} of level {level} has too few hashes")
    return merkle_root(split_hashes(hashes))


def split_hashes(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]


# --- Checkpoints ----------------------------------------------------------------------------------

_ED25519: Final = b"\x01"  # the key type, in a note's key id and in a verifier key
_KEY_ID_BYTES: Final = 4
_DASH: Final = "\u2014 "  # em dash and space: the start of each signature line
_NAME: Final = re.compile(r"[^\s+]{1,256}\Z")
_SIZE: Final = re.compile(r"(?:0|[1-9][0-9]{0,18})\Z")
_VERIFIER: Final = re.compile(r"([^\s+]{1,256})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})\Z")


class Checkpoint(NamedTuple):
    origin: str  # the name of the log
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_encode_base64(self.root)}\n"


class VerifierKey(NamedTuple):
    """A public key and the name of its signer."""

    name: str
    raw: bytes

    @property
    def key_id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.raw).digest()[:_KEY_ID_BYTES]

    def text(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_encode_base64(_ED25519 + self.raw)}"


def log_origin(key: bytes) -> str:
    """Return a name for the log that depends on its key only, so that it does not change with addresses."""
    return f"waypost/{hashlib.sha256(key).hexdigest()[:16]}"


def sign_checkpoint(checkpoint: Checkpoint, key: VerifierKey, sign: Callable[[bytes], bytes]) -> str:
    """Return the signed note. `sign` uses the private half of the key."""
    text = checkpoint.text()
    return f"{text}\n{_DASH}{key.name} {_encode_base64(key.key_id + sign(text.encode()))}\n"


def add_signature(note: str, key: VerifierKey, sign: Callable[[bytes], bytes]) -> str:
    """Return the note with a further signature: of a replaced key, or of a witness."""
    text, _ = _split_note(note)
    return f"{note}{_DASH}{key.name} {_encode_base64(key.key_id + sign(text.encode()))}\n"


def parse_checkpoint(note: str) -> Checkpoint:
    """Parse a note without verification. Lines after the third are extensions."""
    text, _ = _split_note(note)
    lines = text.split("\n")
    if len(lines) < 4 or not lines[0] or not _SIZE.match(lines[1]):
        raise _malformed("it must have an origin, a size and a root")
    root = _decode_base64(lines[2])
    if len(root) != HASH_BYTES:
        raise _malformed("its root must have 32 bytes")
    return Checkpoint(lines[0], int(lines[1]), root)


def verify_checkpoint(note: str, key: VerifierKey) -> Checkpoint:
    """Parse a note that this key signed."""
    text, signatures = _split_note(note)
    for name, key_id, signature in signatures:
        if (name, key_id) == (key.name, key.key_id):
            if not ed25519.verify(key.raw, signature, text.encode()):
                raise BadSignature("The signature of the checkpoint is invalid.", path="checkpoint")
            return parse_checkpoint(note)
    raise BadSignature(f"The checkpoint is not signed by {key.name}.", path="checkpoint")


def parse_verifier_key(text: str) -> VerifierKey:
    found = _VERIFIER.match(text)
    raw = _decode_base64(found[3]) if found else b""
    if found is None or len(raw) != 1 + ed25519.KEY_BYTES or raw[:1] != _ED25519:
        raise InvalidKey("This is not the verifier key of an Ed25519 note.", path="key", hint="Use NAME+ID+KEY.")
    key = VerifierKey(found[1], raw[1:])
    if key.key_id.hex() != found[2]:
        raise InvalidKey("The id in the verifier key belongs to another key.", path="key")
    return key


def _split_note(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Return the signed text, with its last newline, and the signatures after the blank line."""
    if len(note) > limits.CHECKPOINT_BYTES:
        raise _malformed(f"it must have at most {limits.CHECKPOINT_BYTES} characters")
    text, blank, rest = note.rpartition("\n\n")
    if not blank or not rest.endswith("\n"):
        raise _malformed("its signatures must follow a blank line at the end")
    return text + "\n", [_parse_signature(line) for line in rest[:-1].split("\n")]


def _parse_signature(line: str) -> tuple[str, bytes, bytes]:
    name, space, data = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space or not _NAME.match(name):
        raise _malformed("a signature line must be a dash, a name and base64")
    raw = _decode_base64(data)
    if len(raw) <= _KEY_ID_BYTES:
        raise _malformed("a signature is too short")
    return name, raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:]


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode_base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("expected base64") from None
    if _encode_base64(data) != text:
        raise _malformed("its base64 is not canonical")
    return data


def _malformed(reason: str) -> InvalidDocument:
    return InvalidDocument(f"This is not a signed checkpoint: {reason}.", path="checkpoint")
