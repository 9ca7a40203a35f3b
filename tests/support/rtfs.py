"""RTFS for tests: two profiles, a card, and a caller of the registry's methods."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import httpx2

# The facts of the specification's weather example (rtfs.md RTFS-14), in our own words.
WEATHER_PROFILE = """
; A weather agent, as its operator writes it down.
(agent-profile
  :id "weather-reporter-agent-v1"
  :metadata {
    :name "Weather Reporter"
    :version "1.0.2"
    :description "Reports the weather of a place, now and for the days to come."
    :owner "weather-services-inc"
    :discovery-tags [:weather :forecast :location-based "real-time-data"]
    #_:internal-note #_"not for the registry"}
  :capabilities [
    {:capability-id "get-current-weather-v1.0"
     :description "The weather at a place, now."
     :type :task
     :input-schema [:map [:location :string] [:unit [:enum :celsius :fahrenheit] ? {:default :celsius}]]
     :output-schema [:map [:temperature :float] [:condition :string] [:* :any]]
     :annotations {:idempotent true, :max-duration-ms 2000}}]
  :communication-endpoints [
    {:endpoint-id "main-jsonrpc"
     :protocol :json-rpc
     :transport :http
     :uri "http://weather.example.com:8080/rpc"
     :details {:http-methods ["POST"]
               :authentication {:type :api-key :header "X-API-Key"}}
     :provides-capabilities ["get-current-weather-v1.0"]}]
  :discovery-mechanisms [
    {:type :well-known-uri :uri "httpsis://weather.example.com/.well-known/agent" :format :rtfs}
    {:type :registry :registry-uri "https://registry.example.com/agents" :registration-id "weather-7"}])
"""

WEATHER_CARD: dict[str, Any] = {
    "agent_id": "weather-reporter-agent-v1",
    "name": "Weather Reporter",
    "version": "1.0.2",
    "description": "Reports the weather of a place, now and for the days to come.",
    "capabilities": [
        {
            "capability_id": "get-current-weather-v1.0",
            "description": "The weather at a place, now.",
            "type": "task",
            "input_schema_ref": {
                "type": "object",
                "properties": {
                    "location": {"type": "string"},
                    "unit": {"enum": ["celsius", "fahrenheit"], "default": "celsius"},
                },
                "required": ["location"],
                "additionalProperties": True,
            },
            "output_schema_ref": {
                "type": "object",
                "properties": {"temperature": {"type": "number"}, "condition": {"type": "string"}},
                "required": ["temperature", "condition"],
                "additionalProperties": True,
            },
        }
    ],
    "communication": {
        "protocols": ["json-rpc"],
        "endpoints": [
            {
                "protocol": "json-rpc",
                "uri": "http://weather.example.com:8080/rpc",
                "details": {
                    "methods": ["POST"],
                    "authentication": {"type": "api-key", "header": "X-API-Key"},
                    "endpoint_id": "main-jsonrpc",
                    "transport": "http",
                    "provides_capabilities": ["get-current-weather-v1.0"],
                },
            }
        ],
    },
    "discovery_tags": ["weather", "forecast", "location-based", "real-time-data"],
    "metadata": {"owner": "weather-services-inc"},
}

# Two endpoints, a relative well-known address, both kinds of tags, interoperability, a capability that is not declared.
REPORT_PROFILE = """
(agent-profile
  :id "acme/report-builder"
  :metadata {:name "Report Builder", :version "2.1.0", :owner "acme",
             :tags [:reporting :PDF "two words"], :discovery-tags [:pdf],
             :created-at "2025-01-02T03:04:05Z", :updated-at "2025-06-07T08:09:10Z",
             :team/cost-centre 4711, :limits {:pages-per-day 500}}
  :capabilities [
    {:capability-id "build-report" :description "Builds a report from rows."
     :input-schema "schemas/rows.json" :output-schema [:resource FileHandle]}
    {:capability-id "stream-rows" :type :stream-source :output-schema [:stream [:map [:row [:vector :any]]]]}]
  :communication-endpoints [
    {:protocol :websocket :transport :wss :uri "wss://reports.example.org/live" :provides-capabilities ["stream-rows"]}
    {:transport :https :uri "https://reports.example.org/api" :provides-capabilities ["build-report" "ghost"]}]
  :discovery-mechanisms [{:type :well-known-uri :uri "/.well-known/rtfs-agent-profile.json"}]
  :interoperability {:a2a-compatibility {:agent-card-uri "https://reports.example.org/card.json"}}
  :x-house-style "kept")
"""


def card(agent_id: str = "weather", **members: Any) -> dict[str, Any]:
    """A small card; given members replace its own, None removes one."""
    made: dict[str, Any] = {
        "agent_id": agent_id,
        "name": f"Agent {agent_id}",
        "version": "1.0.0",
        "description": "Tells the weather.",
        "capabilities": [{"capability_id": "get-weather", "description": "The weather of a place."}],
        "communication": {"endpoints": [{"protocol": "http", "uri": f"https://{agent_id}.example/rpc"}]},
        "discovery_tags": ["weather"],
        "metadata": {"owner": "acme"},
    }
    made.update(members)
    return deepcopy({name: value for name, value in made.items() if value is not None})


class Rpc:
    """Calls the JSON-RPC methods as one client."""

    def __init__(self, client: httpx2.AsyncClient, path: str = "/rtfs") -> None:
        self.client = client
        self.path = path

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        given = {"content-type": "application/json", **headers}
        if isinstance(body, (str, bytes)):
            return await self.client.post(self.path, content=body, headers=given)
        return await self.client.post(self.path, json=body, headers=headers)

    async def answer(self, method: str, params: Any = None, call_id: Any = 1) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "method": method, "id": call_id}
        response = await self.post(call if params is None else call | {"params": params})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == call_id
        return answer

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.answer(f"rtfs.registry.{method}", params)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.answer(f"rtfs.registry.{method}", params)
        assert "result" not in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def code(self, method: str, **params: Any) -> int:
        code: int = (await self.error(method, **params))["code"]
        return code

    async def register(self, document: dict[str, Any], **params: Any) -> dict[str, Any]:
        return await self.call("register", agent_card=document, **params)

    async def found(self, **criteria: Any) -> list[str]:
        """The ids of a search result, in order."""
        return [agent["agent_id"] for agent in (await self.call("discover", **criteria))["agents"]]
