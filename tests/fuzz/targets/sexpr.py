"""S-expressions: any bytes are forms or a WaypostError, and printed forms parse to the same value."""

from __future__ import annotations

from contextlib import suppress

from waypost.errors import WaypostError
from waypost.model.json import dump_json
from waypost.protocols.rtfs.agent_profile import parse_profiles
from waypost.protocols.rtfs.discover_form import parse_discover, print_discover
from waypost.protocols.rtfs.sexpr import form_to_json, parse_form, parse_forms, print_form, print_line


def fuzz(data: bytes) -> None:
    with suppress(WaypostError):
        parse_profiles(data)
    with suppress(WaypostError):
        form = parse_discover(data)
        again = parse_discover(print_discover(form))
        assert (again.params, again.options) == (form.params, form.options)
    with suppress(WaypostError):
        parse_forms(data, lenient=True)
    with suppress(WaypostError):
        for each in parse_forms(data):
            assert parse_form(print_form(each)) == each
            line = print_line(each)
            assert parse_form(line) == each
            assert "\n" not in line
            with suppress(WaypostError):
                dump_json(form_to_json(each, "$", []))
