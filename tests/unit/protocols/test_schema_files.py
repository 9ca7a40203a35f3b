"""The numbers in the schema files are those of `limits`: a limit that changes must change in the files too."""

from __future__ import annotations

from typing import Any

import pytest

from support.records import CODECS
from waypost import limits

BOUNDS = {
    "profile": {
        "AcceptedAgent.id.maxLength": limits.ID_CHARS,
        "AcceptedAgent.name.maxLength": limits.NAME_CHARS,
        "AcceptedAgent.description.maxLength": limits.DESCRIPTION_CHARS,
        "AcceptedAgent.tags.maxItems": limits.TAGS,
        "AcceptedAgent.tags.items.maxLength": limits.TAG_CHARS,
        "AcceptedAgent.examples.maxItems": limits.EXAMPLES,
        "AcceptedAgent.bindings.maxItems": limits.BINDINGS,
        "AcceptedAgent.version.maxLength": limits.VERSION_CHARS,
        "AcceptedExample.text.maxLength": limits.EXAMPLE_CHARS,
        "AcceptedBinding.endpoint.maxLength": limits.ENDPOINT_CHARS,
    },
    "af": {
        "AcceptedAgentMetadata.summary.maxLength": limits.DESCRIPTION_CHARS,
        "AcceptedAgentMetadata.endpoints.maxItems": limits.JSON_ARRAY_ITEMS,
    },
    "rtfs": {
        "AcceptedCard.agent_id.maxLength": limits.RTFS_ID_CHARS,
        "AcceptedCard.name.maxLength": limits.NAME_CHARS,
        "AcceptedCard.description.maxLength": limits.DESCRIPTION_CHARS,
        "AcceptedCard.capabilities.maxItems": limits.RTFS_CAPABILITIES,
        "AcceptedCard.discovery_tags.maxItems": limits.RTFS_TAGS,
        "AcceptedCapability.capability_id.maxLength": limits.RTFS_ID_CHARS,
        "AcceptedCommunication.endpoints.maxItems": limits.RTFS_ENDPOINTS,
        "AcceptedEndpoint.uri.maxLength": limits.ENDPOINT_CHARS,
    },
    "a2a": {
        "AcceptedAgentCard.version.maxLength": limits.VERSION_CHARS,
        "AcceptedAgentInterface.url.maxLength": limits.ENDPOINT_CHARS,
        "AcceptedOlderAgentCard.url.maxLength": limits.ENDPOINT_CHARS,
    },
    "ard": {
        "AcceptedEntry.version.maxLength": limits.VERSION_CHARS,
    },
    "mcp": {
        "AcceptedServer.title.maxLength": limits.NAME_CHARS,
        "AcceptedServer.description.maxLength": limits.DESCRIPTION_CHARS,
        "AcceptedServer.version.maxLength": limits.VERSION_CHARS,
    },
    "oasf": {
        "AcceptedRecord.version.maxLength": limits.VERSION_CHARS,
    },
}


@pytest.mark.parametrize(
    ("dialect", "path", "bound"), [(name, path, bound) for name, rows in BOUNDS.items() for path, bound in rows.items()]
)
def test_a_schema_file_has_the_bounds_of_limits(dialect: str, path: str, bound: int) -> None:
    definition, member, *rest = path.split(".")
    value: Any = CODECS[dialect].schema()["$defs"][definition]["properties"][member]
    for name in rest:
        value = value[name]
    assert value == bound
