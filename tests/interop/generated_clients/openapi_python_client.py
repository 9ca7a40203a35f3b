"""Registers and finds an agent with the package `generated` that openapi-python-client made. Prints JSON."""

from __future__ import annotations

import json
import sys

from generated import AuthenticatedClient
from generated.api.profile import post_profile_v1_discover
from generated.api.registry import post_api_v1_agents
from generated.models import PostProfileV1DiscoverBody, Profile

DOCUMENT = {
    "id": "by-openapi-python-client",
    "name": "Harp Tuner",
    "description": "Tunes concert harps by ear.",
    "bindings": [{"protocol": "https", "endpoint": "https://harps.example/tune"}],
}


def main(base_url: str, token: str) -> None:
    client = AuthenticatedClient(base_url=base_url, token=token)
    receipt = post_api_v1_agents.sync(client=client, body=Profile.from_dict(DOCUMENT))
    request = PostProfileV1DiscoverBody(query="tune a concert harp", limit=10)
    found = post_profile_v1_discover.sync(client=client, body=request)
    print(json.dumps({"outcome": receipt.outcome.value, "ids": [each.id for each in found.candidates]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
