"""The vectors of one agent as bytes, for other nodes of a cluster, which would compute the same.

They are stored as in the index (see `vector_block`), so a node that takes them has the same scores as the one that made them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from waypost.search.vectors.quantizer import CODE_BITS, SPILL, CoarseQuantizer
from waypost.search.vectors.vector_block import CODED, CodedVectors

_KINDS: Final = {"codes": np.int8, "scales": np.float32, "lists": np.uint16, "signs": np.uint64}


class _PackedVectors(msgspec.Struct, frozen=True, array_like=True):
    digest: bytes  # of the texts that they were made of
    spaces: dict[str, tuple[bytes, bytes, bytes, bytes]]  # the arrays of CODED


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_PackedVectors)


def digest_texts(format_name: str, texts: Sequence[str]) -> bytes:
    """Equal for equal texts and an equal format of the index."""
    digest = hashlib.sha256(format_name.encode())
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8) + encoded)
    return digest.digest()


def pack_vectors(digest: bytes, spaces: Mapping[str, CodedVectors]) -> bytes:
    return _encode(_PackedVectors(digest, {name: _dump(coded) for name, coded in spaces.items()}))


def unpack_vectors(
    packed: bytes, digest: bytes, quantizers: Mapping[str, CoarseQuantizer]
) -> dict[str, CodedVectors] | None:
    """The vectors in each of these spaces; None if they were made of other texts, lack a space, or are damaged."""
    try:
        found = _decoder.decode(packed)
        if found.digest != digest:
            return None
        return {name: _load(found.spaces[name], quantizer) for name, quantizer in quantizers.items()}
    except (msgspec.MsgspecError, KeyError, ValueError):
        return None


def _dump(coded: CodedVectors) -> tuple[bytes, bytes, bytes, bytes]:
    codes, scales, lists, signs = (coded[name].astype(_little(name)).tobytes() for name in CODED)
    return codes, scales, lists, signs


def _load(arrays: tuple[bytes, bytes, bytes, bytes], quantizer: CoarseQuantizer) -> CodedVectors:
    """Raises ValueError if the sizes do not fit each other."""
    widths = {"codes": quantizer.dims, "lists": min(SPILL, quantizer.lists), "signs": CODE_BITS // 64}
    count = len(arrays[CODED.index("scales")]) // _little("scales").itemsize
    coded = {}
    for name, content in zip(CODED, arrays, strict=True):
        array = np.frombuffer(content, _little(name)).astype(_KINDS[name])
        coded[name] = array.reshape((count, widths[name]) if name in widths else (count,))
    if not count:
        raise ValueError("an agent has at least one vector")
    return coded


def _little(name: str) -> np.dtype[np.generic]:
    return np.dtype(_KINDS[name]).newbyteorder("<")
