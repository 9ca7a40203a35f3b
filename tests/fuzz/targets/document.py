"""Agent documents of every dialect, also as text: refused with a path, or a record that every dialect can write."""

from __future__ import annotations

import msgspec

from support.records import CODECS, DECODE, ENCODE
from waypost.errors import WaypostError
from waypost.model.json import dump_json
from waypost.protocols.dialects import decode_document, reject_non_agent, unpack_documents


def fuzz(data: bytes) -> None:
    try:
        unpack_documents(data)
    except msgspec.DecodeError:
        pass  # not JSON
    except WaypostError as error:
        if not error.path:
            raise
    try:
        _, document, decoded = decode_document(data, None, DECODE)
        if document is not None:
            reject_non_agent(document)
    except WaypostError as error:
        if not error.path:
            raise
        return
    for codec in CODECS.values():
        dump_json(codec.encode(decoded.record, ENCODE).document)
