"""`waypost.conformance` judges software of others: an agent made with the A2A SDK, and a mounted `Discovery`."""

from __future__ import annotations

from a2a.server.routes import create_agent_card_routes
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityScheme,
)
from starlette.applications import Starlette

from support.callable_agents import serving
from waypost import Discovery
from waypost.conformance import run

CARD = AgentCard(
    name="Recipe Agent",
    description="Finds recipes.",
    version="1.0.0",
    supported_interfaces=[
        AgentInterface(url="https://recipes.example.com/rpc", protocol_binding="JSONRPC", protocol_version=version)
        for version in ("1.0", "0.3")  # so the SDK adds the members of 0.3
    ],
    security_schemes={"key": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))},
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="find", name="Find", description="Finds a recipe.", tags=["food"])],
)
AGENTS = [
    {
        "id": "image-annotator",
        "name": "Image Annotator",
        "description": "Annotates images with labels and boxes.",
        "version": "1.4.2",
        "tags": ["vision", "annotation"],
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.com/v1/message:send"}],
    },
    {
        "id": "https://agents.example.com/id/archivist",
        "name": "Archivist",
        "description": "Finds old documents.",
        "tags": ["archive", "search"],
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.com/archivist"}],
    },
]


def test_an_agent_of_the_a2a_sdk_is_recognised_and_its_card_is_in_order() -> None:
    with serving(Starlette(routes=create_agent_card_routes(CARD))) as url:
        report = run(url)
    assert report.recognised == ("dns-aid", "neighbours")
    judged = {result.id: result.status for result in report.results if result.id.startswith("A2A-")}
    passed = {"A2A-1", "A2A-2", "A2A-3", "A2A-4", "A2A-5", "A2A-6"}
    assert {name for name, status in judged.items() if status == "passed"} >= passed
    assert {name for name, status in judged.items() if status == "failed"} <= {"A2A-9"}  # the SDK sets no validators


def test_discovery_in_an_application_of_ones_own_meets_the_agent_framework() -> None:
    with serving(Discovery(agents=AGENTS)) as url:
        report = run(url)
    assert report.recognised == ("agentframework",)
    assert [(result.id, result.message) for result in report.failures] == []
    assert report.count("passed") >= 40
