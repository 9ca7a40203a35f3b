"""Clients of A2A SDKs resolve the card of every sample agent by its base URL, and search by sending the service a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
)
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import MessageToDict, ParseDict

from support.judges import A2A_SDK_0_3, A2A_SDK_0_3_VERSION, python_packages, run_python
from support.records import CODECS
from support.server import RunningServer, running_server
from waypost.samples import load

OLDER_CLIENT = Path(__file__).parents[1] / "support" / "a2a_sdk_0_3_process.py"
STATUSES = ("active", "inactive", "suspended", "deprecated", "testing")
LISTED = "/api/v1/agents?limit=200&" + "&".join(f"status={status}" for status in STATUSES)
OLDER_MEMBERS = {"url", "preferredTransport", "protocolVersion", "additionalInterfaces", "security"}
A2A_BINDINGS = ("JSONRPC", "GRPC", "HTTP+JSON")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--anonymous-read") as running:
        for sample in load():
            answer = httpx.post(f"{running.url}/api/v1/agents", content=sample.data, headers=running.headers)
            assert answer.status_code == 201
        yield running


def request_of(*parts: Part, **configuration: object) -> SendMessageRequest:
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=parts)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))


@pytest.mark.judge("a2a-sdk", version("a2a-sdk"), "resolves the card of every sample agent by its base URL")
async def test_the_sdk_resolves_the_card_of_every_agent_by_its_base_url(
    server: RunningServer, record_property: Callable[[str, object], None]
) -> None:
    async with httpx.AsyncClient() as http:
        listed = (await http.get(f"{server.url}{LISTED}")).json()["agents"]
        assert len(listed) == len(load())
        for agent in listed:
            base = f"{server.url}/a2a/{quote(agent['id'], safe='')}"
            card = await A2ACardResolver(http, base).get_agent_card()
            validate_proto_required_fields(card)
            for query in ("", "?v=1.0", "?v=0.3"):
                document = (await http.get(f"{base}/.well-known/agent-card.json{query}")).json()
                jsonschema.validate(document, CODECS["a2a"].schema())
                if query == "?v=1.0":
                    assert ParseDict(document, AgentCard()) == card  # no member is unknown to 1.0
                    assert not document.keys() & OLDER_MEMBERS
            assert (card.name, len(card.supported_interfaces)) == (agent["name"], len(agent["bindings"]))
            for interface, binding in zip(card.supported_interfaces, agent["bindings"], strict=True):
                is_a2a = binding["protocol"].startswith("a2a") and not binding.get("unresolved")
                assert (interface.protocol_binding in A2A_BINDINGS) == is_a2a
                assert is_a2a or interface.protocol_binding == f"urn:waypost:binding:{binding['protocol']}"
        record_property("total", len(listed))


@pytest.mark.judge("a2a-sdk", version("a2a-sdk"), "searches by sending the service a message")
async def test_the_sdk_searches_by_sending_the_service_a_message(server: RunningServer) -> None:
    async with httpx.AsyncClient() as http:
        client = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(server.url)
        [answer] = [event async for event in client.send_message(request_of(Part(text="translate an invoice")))]
        text, data = answer.message.parts
        assert answer.message.role == Role.ROLE_AGENT
        assert text.text.startswith("1. Invoice Translator: ")
        found = MessageToDict(data.data)["candidates"]
        assert found[0]["id"] == "https://agents.example.com/id/invoice-translator"
        only_text = request_of(Part(text="translate an invoice"), accepted_output_modes=["text/plain"])
        [brief] = [event async for event in client.send_message(only_text)]
        assert [part.WhichOneof("content") for part in brief.message.parts] == ["text"]


async def test_the_sdk_gets_the_errors_of_the_protocol(server: RunningServer) -> None:
    async with httpx.AsyncClient() as http:
        client = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(server.url)
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="t"))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="t"))
        with pytest.raises(ContentTypeNotSupportedError):
            await anext(aiter(client.send_message(request_of(Part(url="https://x.example/f.pdf")))))
        with pytest.raises(InvalidParamsError):
            await anext(aiter(client.send_message(request_of())))
        assert not (await client.list_tasks(ListTasksRequest())).tasks


def older_interfaces(card: dict[str, Any]) -> set[tuple[str, str]]:
    """0.3 may repeat the preferred interface in the list."""
    also = {(item["url"], item["transport"]) for item in card.get("additionalInterfaces", [])}
    return {(card["url"], card["preferredTransport"]), *also}


@pytest.mark.judge(
    "a2a-sdk", A2A_SDK_0_3_VERSION, "resolves the card of every sample agent by its base URL, and searches by a message"
)
def test_the_sdk_0_3_resolves_every_card_and_searches(
    server: RunningServer, record_property: Callable[[str, object], None]
) -> None:
    told = json.loads(run_python(python_packages(A2A_SDK_0_3), OLDER_CLIENT, server.url))
    listed = {agent["id"]: agent for agent in httpx.get(f"{server.url}{LISTED}").json()["agents"]}
    assert told["cards"].keys() == listed.keys()
    assert len(listed) == len(load())
    for agent_id, (card, requested) in told["cards"].items():
        endpoints = [binding["endpoint"] for binding in listed[agent_id]["bindings"]]
        assert card["name"] == listed[agent_id]["name"]
        assert card["protocolVersion"].startswith("0.")
        assert {url for url, _ in older_interfaces(card)} == set(endpoints)
        assert older_interfaces(card) == older_interfaces(requested)
        members = ("url", "preferredTransport", "security", "securitySchemes", "skills")
        assert [card.get(name) for name in members] == [requested.get(name) for name in members]
    record_property("total", len(load()) + 1)
    translator, _ = told["cards"]["https://agents.example.com/id/invoice-translator"]
    assert (translator["url"], translator["preferredTransport"]) == (
        "https://translate.example.com/invoices",
        "urn:waypost:binding:https",
    )
    text, data = told["answer"]
    assert text["text"].startswith("1. Invoice Translator: ")
    assert data["data"]["candidates"][0]["id"] == "https://agents.example.com/id/invoice-translator"
