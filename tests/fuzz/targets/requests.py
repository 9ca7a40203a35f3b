"""Bodies and parameters of searches: discovery requests, ARD, RTFS criteria, version ranges and times."""

from __future__ import annotations

from contextlib import suppress

from waypost.errors import WaypostError
from waypost.model.json import parse_object
from waypost.model.times import find_instant, to_rfc3339
from waypost.model.versions import compare_versions, find_version, parse_range
from waypost.protocols.announce.messages import parse_capability_requirement
from waypost.protocols.ard.query import parse_explore, parse_filter, parse_order_by, parse_search
from waypost.protocols.profile.discovery_request import parse_discovery_request
from waypost.protocols.rtfs.criteria import parse_criteria


def fuzz(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (parse_range, parse_filter, parse_order_by, parse_capability_requirement):
        with suppress(WaypostError):
            parse(text)
    instant = find_instant(text)
    if instant is not None:
        assert find_instant(to_rfc3339(instant)) == int(instant)
    left, _, right = text.partition(" ")
    forwards, backwards = compare_versions(left, right), compare_versions(right, left)
    assert (forwards is None) == (backwards is None) == (find_version(left) is None or find_version(right) is None)
    assert forwards is None or forwards == -backwards  # type: ignore[operator]
    for read in (parse_discovery_request, parse_search, parse_explore, parse_criteria):
        with suppress(WaypostError):
            read(parse_object(data))
