"""TXT records of ADP, AID, DNS-AID and mDNS: several at one name, split at zero bytes of the input."""

from __future__ import annotations

from contextlib import suppress

from waypost.errors import WaypostError
from waypost.protocols.adp.txt_record import parse_adp_txt, select_adp_txt, write_adp_txt
from waypost.protocols.announce.packets import TxtPointer, parse_txt, write_txt_message, write_txt_pointer
from waypost.protocols.dns_aid.txt_records import find_companion_txt, parse_aid, select_aid
from waypost.protocols.dns_rdata import read_strings, read_text, write_text


def fuzz(data: bytes) -> None:
    with suppress(WaypostError):
        assert b"".join(bytes((len(part),)) + part for part in read_strings(data)) == data
    with suppress(WaypostError):
        text = read_text(data)
        assert read_text(write_text(text)) == text
    with suppress(WaypostError):
        found = parse_txt(data)
        if isinstance(found, TxtPointer):
            assert parse_txt(write_txt_pointer(found)) == found
        elif found.agent_id is not None:  # else the record is the bare document
            again = parse_txt(write_txt_message(found.message, found.agent_id))
            assert (again.agent_id, again.message) == (found.agent_id, found.message)  # type: ignore[union-attr]
    text = data.decode("utf-8", "replace")
    with suppress(WaypostError):
        parse_aid(text)
    with suppress(WaypostError):
        record = parse_adp_txt(text)
        assert parse_adp_txt(write_adp_txt(record)) == record
    for records in ([data], [write_text(part) for part in text.split("\0")[:8]]):
        for select in (select_adp_txt, select_aid, find_companion_txt):
            with suppress(WaypostError):
                select(records)
