"""A2A cards: 1.0 in and out, older ones in, and errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec.structs import replace

from support.older_documents import A2A_0_1, A2A_0_2, A2A_0_3, A2A_SNAKE
from support.records import DECODE, ENCODE, NOW
from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, Example
from waypost.protocols.a2a.codec import A2A, EXTENSION
from waypost.protocols.a2a.legacy import downgrade_card, to_both_forms, to_current_form, to_older_form, upgrade_card
from waypost.protocols.codec import DecodeContext

FULL, SMALLEST = A2A.examples()


def decode(document: JsonObject, **context: Any) -> AgentRecord:
    return A2A.decode(document, DecodeContext(now=NOW, **context)).record


def card_with(**members: Any) -> JsonObject:
    return {**copy.deepcopy(SMALLEST), **members}


def test_a_card_maps_as_the_table_says() -> None:
    record = decode(FULL)
    assert record.name == "Harbour Route Planner"
    assert record.description.startswith("Plans delivery routes")
    assert "Draw a map: Draws a planned route" in record.description
    assert record.tags == ("logistics", "routing", "shipping", "maps", "visualisation", "plan-route", "draw-map", "a2a")
    assert record.examples[2] == Example(
        id="draw-map-1", text="Show me the route of order 4711.", tags=("maps", "visualisation")
    )
    assert [(b.protocol, b.priority, b.interaction_model) for b in record.bindings] == [
        ("a2a+jsonrpc", 0, "streaming"),
        ("a2a+grpc", 1, "streaming"),
        ("a2a+http-json", 2, "streaming"),
    ]
    assert record.bindings[0].media_types == ("application/json", "text/plain", "image/png")
    assert record.constraints == {"required_extensions": ["https://example.com/ext/customs/v1"]}
    assert record.auth["required"] is True
    assert [scheme["type"] for scheme in record.auth["schemes"]] == ["openIdConnect", "apiKey"]
    assert record.auth["schemes"][0]["scopes"] == ["openid", "routes:plan"]


def test_a_signature_is_shown_with_its_source_and_kept_verbatim() -> None:
    record = decode(FULL)
    assert record.signature == {**FULL["signatures"][0], "source": "a2a-jws"}
    assert "verified" not in record.signature
    assert record.extra["org.waypost.a2a"]["signatures"] == FULL["signatures"]


def test_a_card_comes_back_as_it_was() -> None:
    for card in (FULL, SMALLEST):
        assert A2A.encode(decode(card), ENCODE).document == card


def test_the_id_is_where_the_card_was_found_else_its_first_interface_and_tenant() -> None:
    interface = {"url": "https://h.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t1"}
    card = card_with(supportedInterfaces=[interface])
    assert decode(card).id == "https://h.example/a2a#t1"
    assert decode(card).constraints == {"tenant": "t1"}
    fetched = A2A.decode(card, DecodeContext(now=NOW, source_url="https://h.example/.well-known/agent-card.json"))
    assert fetched.record.id == "https://h.example/.well-known/agent-card.json"
    assert fetched.aliases == ("https://h.example/a2a#t1",)


def test_a_card_that_we_wrote_keeps_its_record_id_wherever_it_is_fetched() -> None:
    record = AgentRecord(
        id="agent:x.example",
        name="X",
        description="Does x.",
        bindings=(Binding(protocol="https", endpoint="https://x.example/run"),),
    )
    card = A2A.encode(record, ENCODE).document
    decoded = A2A.decode(card, DecodeContext(now=NOW, source_url="https://mirror.example/card.json"))
    assert decoded.record == record
    assert decoded.aliases == ()


def test_a_written_card_has_all_required_members_and_an_honest_interface() -> None:
    record = AgentRecord(
        id="agent:x.example",
        name="Invoice Reader",
        description="Reads invoices.",
        tags=("finance",),
        examples=(Example(text="Read this invoice."),),
        bindings=(
            Binding(protocol="https", endpoint="https://x.example/slow", priority=5),
            Binding(protocol="a2a+grpc", endpoint="https://x.example/grpc", priority=1),
        ),
        auth={"schemes": [{"type": "bearer"}, {"type": "carrier-pigeon"}], "required": True},
    )
    card = A2A.encode(record, ENCODE).document
    assert [(i["protocolBinding"], i["url"]) for i in card["supportedInterfaces"]] == [
        ("GRPC", "https://x.example/grpc"),
        ("urn:waypost:binding:https", "https://x.example/slow"),
    ]
    assert [i["protocolVersion"] for i in card["supportedInterfaces"]] == ["1.0", "0.0"]
    assert card["skills"] == [
        {
            "id": "invoice-reader",
            "name": "Invoice Reader",
            "description": "Reads invoices.",
            "tags": ["finance"],
            "examples": ["Read this invoice."],
        }
    ]
    assert card["securitySchemes"] == {"http": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    assert card["securityRequirements"] == [{"schemes": {"http": {"list": []}}}]
    assert decode(card) == record


def test_the_remainder_is_one_optional_extension() -> None:
    card = A2A.encode(replace(decode(FULL), status="testing"), ENCODE).document
    (ours,) = [item for item in card["capabilities"]["extensions"] if item["uri"] == EXTENSION]
    assert ours["params"] == {"members": {"status": "testing"}}
    assert "required" not in ours
    assert decode(card).status == "testing"


def test_a_changed_member_is_rewritten_and_the_rest_of_the_card_kept() -> None:
    record = replace(decode(FULL), tags=("only-this",))
    card = A2A.encode(record, ENCODE).document
    assert card["skills"][0]["tags"] == ["only-this"]
    assert card["provider"] == FULL["provider"]
    assert decode(card) == record


def test_a_card_of_0_3_is_read_and_written_as_1_0() -> None:
    decoded = A2A.decode(A2A_0_3, DECODE)
    record = decoded.record
    assert record.id == "https://recipes.example.com/rpc"
    assert [(b.protocol, b.endpoint) for b in record.bindings] == [
        ("a2a+jsonrpc", "https://recipes.example.com/rpc"),
        ("a2a+grpc", "https://recipes.example.com/grpc"),
    ]
    assert any("before A2A 1.0" in warning for warning in decoded.warnings)
    card = A2A.encode(record, ENCODE).document
    assert card["supportedInterfaces"] == [
        {"url": "https://recipes.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3.0"},
        {
            "url": "https://recipes.example.com/grpc",
            "protocolBinding": "GRPC",
            "protocolVersion": "0.3.0",
            "note": "slow",
        },
    ]
    assert card["capabilities"] == {"extendedAgentCard": True, "streaming": True, "stateTransitionHistory": False}
    assert card["securitySchemes"] == {
        "google": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://accounts.example.com/oidc"}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
        "cert": {"mtlsSecurityScheme": {}},
        "o": {"oauth2SecurityScheme": {"flows": A2A_0_3["securitySchemes"]["o"]["flows"]}},
    }
    assert card["securityRequirements"] == [
        {"schemes": {"google": {"list": ["openid"]}}},
        {"schemes": {"key": {"list": []}}},
    ]
    assert card["skills"][0]["securityRequirements"] == [{"schemes": {"key": {"list": []}}}]
    assert card["houseStyle"] == {"colour": "green"}
    assert not {"url", "preferredTransport", "additionalInterfaces", "security"} & set(card)


def test_a_card_of_0_2_in_snake_case_is_read() -> None:
    assert A2A.recognises(A2A_0_2)
    record = decode(A2A_0_2)
    assert record.bindings[0].media_types == ("text",)
    assert record.auth == {"schemes": [{"id": "Bearer", "type": "http", "scheme": "bearer"}], "required": True}
    written = A2A.encode(record, ENCODE).document
    assert written["capabilities"] == {"pushNotifications": True}
    assert written["skills"][0]["inputModes"] == ["text"]
    assert written["supportedInterfaces"][0]["protocolVersion"] == "0.2"
    assert written["securitySchemes"] == {"Bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    assert "authentication" not in written


def test_a_card_of_the_first_sdk_has_null_for_what_it_does_not_say() -> None:
    record = decode(A2A_0_1)
    assert record.description == "Exchange\nConvert currencies: Convert currencies"
    assert record.tags == ("convert", "a2a")
    assert record.auth == {
        "schemes": [
            {"id": "apiKey", "type": "apiKey", "in": "header", "name": "X-API-Key"},
            {"id": "OAuth2", "type": "oauth2", "flows": {}},
            {"id": "Basic", "type": "http", "scheme": "basic"},
        ],
        "required": True,
    }
    current = to_current_form(A2A_0_1, A2A.encode(record, ENCODE).document)
    assert current["capabilities"] == {"streaming": True}
    assert current["skills"] == [
        {"id": "convert", "name": "Convert currencies", "description": "Convert currencies", "tags": ["convert"]}
    ]
    assert None not in current.values()
    assert "authentication" not in current


@pytest.mark.parametrize("name", ["public", "None", ""])
def test_authentication_that_names_no_scheme_requires_nothing(name: str) -> None:
    assert decode({**A2A_0_2, "authentication": {"schemes": [name]}}).auth is None


def test_a_text_that_is_longer_than_the_record_holds_is_cut_there_and_reported() -> None:
    card = card_with(name="n" * (limits.NAME_CHARS + 1), description="Plans. " * (limits.DESCRIPTION_CHARS // 6))
    decoded = A2A.decode(card, DecodeContext(now=NOW))
    assert (len(decoded.record.name), decoded.record.name[-1]) == (limits.NAME_CHARS, "…")
    assert len(decoded.record.description) <= limits.DESCRIPTION_CHARS
    assert decoded.record.description.endswith("Plans.…")
    assert [loss.path for loss in decoded.losses] == ["$.name", "$.description"]
    assert A2A.encode(decoded.record, ENCODE).document == card


@pytest.mark.parametrize("binding", ["jsonrpc", "JsonRpc"])
def test_a_binding_in_another_case_is_understood_and_kept(binding: str) -> None:
    card = card_with(supportedInterfaces=[{"url": "https://h.example/", "protocolBinding": binding}])
    record = decode(card)
    assert record.bindings[0].protocol == "a2a+jsonrpc"
    assert A2A.encode(record, ENCODE).document["supportedInterfaces"] == card["supportedInterfaces"]


def test_a_path_for_a_url_is_of_the_host_that_served_the_card() -> None:
    card = card_with(supportedInterfaces=[{"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}])
    record = decode(card, source_url="https://h.example/.well-known/agent-card.json")
    assert record.bindings[0].endpoint == "https://h.example/a2a"
    older = {**A2A_0_3, "url": "/rpc", "additionalInterfaces": [{"url": "/grpc", "transport": "GRPC"}]}
    assert [binding.endpoint for binding in decode(older, source_url="https://h.example/card").bindings] == [
        "https://h.example/rpc",
        "https://h.example/grpc",
    ]
    for sent, path in ((card, "$.supportedInterfaces[0].url"), (older, "$.url")):
        with pytest.raises(InvalidDocument, match="has no host") as caught:
            decode(sent)
        assert caught.value.path == path


def test_endpoints_without_a_host_are_no_interfaces() -> None:
    path, url = Binding(protocol="https", endpoint="/v1/"), Binding(protocol="https", endpoint="https://h.example/v1/")
    record = AgentRecord(id="urn:example:registry", name="Registry", description="Finds agents.", bindings=(path,))
    written = A2A.encode(record, ENCODE)
    assert written.document["supportedInterfaces"] == []
    assert [(loss.path, "no host" in loss.reason) for loss in written.losses] == [("$.bindings", True)]
    both = replace(record, bindings=(path, url))
    written = A2A.encode(both, ENCODE)
    assert [item["url"] for item in written.document["supportedInterfaces"]] == ["https://h.example/v1/"]
    assert written.losses == ()
    assert decode(written.document).bindings == both.bindings


def test_the_form_of_1_0_has_no_capability_of_0_3() -> None:
    for received in (A2A_0_3, card_with(capabilities={"stateTransitionHistory": False, "streaming": True})):
        written = A2A.encode(decode(received), ENCODE).document
        assert "stateTransitionHistory" not in to_current_form(received, written)["capabilities"]
        assert to_both_forms(received, written)["capabilities"]["stateTransitionHistory"] is False


def test_a_scheme_of_0_3_with_several_flows_becomes_a_scheme_for_each() -> None:
    token, login = {"tokenUrl": "https://t.example", "scopes": {}}, {"authorizationUrl": "https://a.example"}
    flows = {"authorizationCode": login | token, "clientCredentials": token}
    older = {
        **A2A_0_3,
        "securitySchemes": {"o": {"type": "oauth2", "flows": flows}, "key": A2A_0_3["securitySchemes"]["key"]},
        "security": [{"o": ["read"], "key": []}],
        "skills": [{**A2A_0_3["skills"][0], "security": [{"o": ["write"]}]}],
    }
    record = decode(older)
    assert record.auth["schemes"][0]["flows"] == flows
    written = A2A.encode(record, ENCODE).document
    card = to_current_form(older, written)
    assert [
        list(card["securitySchemes"][name]["oauth2SecurityScheme"]["flows"]) for name in ("o", "o-clientCredentials")
    ] == [
        ["authorizationCode"],
        ["clientCredentials"],
    ]
    assert card["securityRequirements"] == [
        {"schemes": {"o": {"list": ["read"]}, "key": {"list": []}}},
        {"schemes": {"o-clientCredentials": {"list": ["read"]}, "key": {"list": []}}},
    ]
    assert [list(item["schemes"]) for item in card["skills"][0]["securityRequirements"]] == [
        ["o"],
        ["o-clientCredentials"],
    ]
    assert decode(written).auth == record.auth


def test_a_skill_that_is_written_has_a_tag() -> None:
    card = A2A.encode(replace(decode(SMALLEST), tags=(), extra={}), ENCODE).document
    assert card["skills"][0]["tags"] == [card["skills"][0]["id"]]
    assert decode(card).tags == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"url": "a b"}, "$.url"),
        ({"additionalInterfaces": [{"transport": "GRPC"}]}, "$.additionalInterfaces[0].url"),
        ({"additionalInterfaces": False}, "$.additionalInterfaces"),
        ({"preferredTransport": 5}, "$.preferredTransport"),
        ({"protocolVersion": 3}, "$.protocolVersion"),
        ({"supportsAuthenticatedExtendedCard": "yes"}, "$.supportsAuthenticatedExtendedCard"),
    ],
)
def test_an_error_in_an_older_card_is_reported_at_its_own_path(change: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(A2A_0_3 | change)
    assert caught.value.path == path


def test_a_card_of_1_0_in_snake_case_is_read() -> None:
    record = decode(A2A_SNAKE)
    assert [(b.protocol, b.endpoint) for b in record.bindings] == [("a2a+grpc", "https://snake.example/a2a")]
    assert record.auth["schemes"] == [
        {"id": "key", "type": "apiKey", "in": "header", "name": "X-Key", "scopes": ["read"]},
        {
            "id": "login",
            "type": "oauth2",
            "flows": {
                "clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {"token_url": "Tokens."}}
            },
            "metadata_url": "https://id.example/metadata",
        },
    ]
    assert A2A.encode(record, ENCODE).document["capabilities"] == {"extendedAgentCard": True}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"default_input_modes": []}, "$.default_input_modes"),
        (
            {"skills": [{"id": "s", "name": "S", "description": "", "inputModes": [], "input_modes": []}]},
            "$.skills[0].input_modes",
        ),
    ],
)
def test_a_member_under_two_names_is_refused(change: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(card_with(**change))
    assert caught.value.path == path
    assert "two names" in caught.value.message


@pytest.mark.parametrize(
    "place", ["supportedInterfaces", "skills", "signatures", "capabilities", "provider", "extensions"]
)
def test_unknown_members_live_on_inside_nested_objects(place: str) -> None:
    card = copy.deepcopy(FULL)
    holder = card["capabilities"]["extensions"] if place == "extensions" else card[place]
    (holder[-1] if isinstance(holder, list) else holder)["x-unknown"] = {"deep": [1]}
    assert A2A.encode(decode(card), ENCODE).document == card


def test_long_cards_are_digested_within_the_bounds_of_a_record_and_kept_whole() -> None:
    skills = [
        {"id": f"s{n}", "name": f"Skill {n}", "description": "d" * 200, "tags": [f"t{n}"], "examples": ["e" * 3000]}
        for n in range(80)
    ]
    interfaces = [
        {"url": f"https://h.example/{n}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for n in range(40)
    ]
    card = card_with(skills=skills, supportedInterfaces=interfaces)
    record = decode(card)
    assert (len(record.tags), record.tags[-1]) == (limits.TAGS, "a2a")
    assert (len(record.examples), len(record.bindings)) == (limits.EXAMPLES, limits.BINDINGS)
    assert len(record.description) <= limits.DESCRIPTION_CHARS
    assert len(record.examples[0].text) <= limits.EXAMPLE_CHARS
    assert A2A.encode(record, ENCODE).document == card


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"name": None}, "$.name", "missing"),
        ({"description": 5}, "$.description", "must be a string"),
        ({"version": ""}, "$.version", "empty"),
        ({"supportedInterfaces": []}, "$.supportedInterfaces", "no interface"),
        ({"supportedInterfaces": {}}, "$.supportedInterfaces", "Expected an array"),
        ({"supportedInterfaces": ["x"]}, "$.supportedInterfaces[0]", "Expected an object"),
        ({"supportedInterfaces": [{"protocolBinding": "GRPC"}]}, "$.supportedInterfaces[0].url", "missing"),
        ({"supportedInterfaces": [{"url": "a b", "protocolBinding": "G"}]}, "$.supportedInterfaces[0].url", "spaces"),
        ({"supportedInterfaces": [{"url": "u"}]}, "$.supportedInterfaces[0].protocolBinding", "missing"),
        ({"capabilities": []}, "$.capabilities", "must be an object"),
        ({"capabilities": {"extensions": [{}]}}, "$.capabilities.extensions[0].uri", "missing"),
        ({"skills": [{"name": "x", "description": "", "tags": []}]}, "$.skills[0].id", "missing"),
        ({"skills": [{"id": "x", "name": "x", "description": "", "tags": [1]}]}, "$.skills[0].tags[0]", "string"),
        ({"defaultInputModes": "text"}, "$.defaultInputModes", "Expected an array"),
        ({"securitySchemes": {"a": 1}}, "$.securitySchemes.a", "Expected an object"),
        (
            {"securitySchemes": {"a": {"mtlsSecurityScheme": {}, "httpAuthSecurityScheme": {}}}},
            "$.securitySchemes.a",
            "exactly one key",
        ),
        ({"securityRequirements": [1]}, "$.securityRequirements[0]", "Expected an object"),
        ({"signatures": [{"protected": "x"}]}, "$.signatures[0].signature", "missing"),
        ({"signatures": [{"protected": "x", "signature": "y", "header": 5}]}, "$.signatures[0].header", "an object"),
        ({"provider": "me"}, "$.provider", "must be an object"),
        ({"provider": {"url": 5}}, "$.provider.url", "must be a string"),
        ({"capabilities": {"streaming": "yes"}}, "$.capabilities.streaming", "must be a boolean"),
        (
            {"capabilities": {"extensions": [{"uri": "u", "required": 1}]}},
            "$.capabilities.extensions[0].required",
            "must be a boolean",
        ),
        ({"skills": False}, "$.skills", "Expected an array"),
        (
            {"skills": [{"id": "x", "name": "x", "description": "", "securityRequirements": [1]}]},
            "$.skills[0].securityRequirements[0]",
            "Expected an object",
        ),
        (
            {"securitySchemes": {"a": {"apiKeySecurityScheme": {"name": 5}}}},
            "$.securitySchemes.a.apiKeySecurityScheme.name",
            "must be a string",
        ),
        (
            {"securitySchemes": {"a": {"oauth2SecurityScheme": {"flows": []}}}},
            "$.securitySchemes.a.oauth2SecurityScheme.flows",
            "must be an object",
        ),
        (
            {"securityRequirements": [{"schemes": {"a": {"list": [5]}}}]},
            "$.securityRequirements[0].schemes.a.list[0]",
            "string",
        ),
        (
            {"securityRequirements": [{"schemes": {"a": 5}}]},
            "$.securityRequirements[0].schemes.a",
            "Expected an object",
        ),
    ],
)
def test_a_bad_card_is_refused_with_the_place_and_the_reason(change: JsonObject, path: str, says: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        decode(card_with(**change))
    assert caught.value.path == path
    assert says in caught.value.message


def test_a_card_without_an_address_gets_a_hint() -> None:
    card = {name: value for name, value in SMALLEST.items() if name != "supportedInterfaces"}
    with pytest.raises(InvalidDocument) as caught:
        decode(card)
    assert caught.value.path == "$.supportedInterfaces"
    assert "protocolBinding" in (caught.value.hint or "")


def test_members_that_protobuf_omits_are_empty_with_a_warning() -> None:
    card = {name: value for name, value in SMALLEST.items() if name not in ("skills", "capabilities")}
    decoded = A2A.decode(card, DECODE)
    assert decoded.record.tags == ("a2a",)
    assert any(warning.startswith("$.skills") for warning in decoded.warnings)


def test_a_record_without_a_binding_is_a_reported_loss() -> None:
    encoded = A2A.encode(AgentRecord(id="x", name="X", description="Does x."), ENCODE)
    assert [loss.path for loss in encoded.losses] == ["$.bindings"]
    assert encoded.document["supportedInterfaces"] == []


@pytest.mark.parametrize("carried", [5, {"members": 5}, {"absent": 3}, {"members": {"name": ""}}])
def test_a_remainder_that_was_tampered_with_is_refused_at_its_place(carried: Any) -> None:
    card = card_with(capabilities={"extensions": [{"uri": EXTENSION, "params": carried}]})
    with pytest.raises(InvalidDocument) as caught:
        decode(card)
    assert (caught.value.path or "").startswith("$.capabilities.extensions[0].params")


@pytest.mark.parametrize("protocol", ["https", "mcp", "mcp-package", "agp", "a", "x" * 64])
def test_a_binding_that_is_not_a2a_has_a_urn_and_does_not_claim_a_version_of_a2a(protocol: str) -> None:
    record = replace(decode(FULL), bindings=(Binding(protocol=protocol, endpoint="pkg:npm/x@1"),))
    (interface,) = A2A.encode(record, ENCODE).document["supportedInterfaces"]
    assert interface == {
        "url": "pkg:npm/x@1",
        "protocolBinding": f"urn:waypost:binding:{protocol}",
        "protocolVersion": "0.0",
    }
    assert decode(A2A.encode(record, ENCODE).document) == record


def test_the_name_a2a_alone_is_json_rpc() -> None:
    record = replace(decode(FULL), bindings=(Binding(protocol="a2a", endpoint="https://h.example/a2a"),))
    card = A2A.encode(record, ENCODE).document
    assert (card["supportedInterfaces"][0]["protocolBinding"], decode(card)) == ("JSONRPC", record)


@pytest.mark.parametrize(
    "binding", ["WEBSOCKET", "https://bindings.example/a2a/nats/v1", f"https://b.example/{'x' * 200}"]
)
def test_a_custom_binding_of_a_card_keeps_its_name(binding: str) -> None:
    interface = {"url": "wss://h.example", "protocolBinding": binding, "protocolVersion": "1.0"}
    card = card_with(supportedInterfaces=[interface])
    assert A2A.encode(decode(card), ENCODE).document["supportedInterfaces"] == [interface]


@pytest.mark.parametrize(
    ("urls", "flow"),
    [
        ({"token_url": "https://t.example"}, "clientCredentials"),
        ({"token_url": "https://t.example", "authorization_url": "https://a.example"}, "authorizationCode"),
    ],
)
def test_oauth_without_an_authorization_url_is_client_credentials(urls: JsonObject, flow: str) -> None:
    auth = {"schemes": [{"type": "oauth2", "scopes": ["read"], **urls}], "required": True}
    card = A2A.encode(replace(decode(FULL), auth=auth), ENCODE).document
    (scheme,) = card["securitySchemes"].values()
    (written,) = scheme["oauth2SecurityScheme"]["flows"].items()
    assert written[0] == flow
    assert (written[1]["tokenUrl"], written[1]["scopes"]) == ("https://t.example", {"read": ""})


@pytest.mark.parametrize(
    ("scheme", "written"),
    [
        ({"type": "oauth2"}, {"oauth2SecurityScheme": {"flows": {}}}),
        (
            {"type": "oauth2", "authorization_url": "https://a.example"},
            {"oauth2SecurityScheme": {"flows": {"implicit": {"authorizationUrl": "https://a.example", "scopes": {}}}}},
        ),
        (
            {"type": "oauth2", "flows": {"authorizationCode": {"tokenUrl": "https://t.example"}, "x": 1}},
            {"oauth2SecurityScheme": {"flows": {}}},
        ),
        (
            {"type": "oauth2", "flows": {"password": {"tokenUrl": "https://t.example", "scopes": ["read"]}}},
            {
                "oauth2SecurityScheme": {
                    "flows": {"password": {"tokenUrl": "https://t.example", "scopes": {"read": ""}}}
                }
            },
        ),
        ({"type": "apiKey", "in": "body"}, {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}),
        ({"type": "openIdConnect"}, None),
    ],
)
def test_a_written_scheme_has_what_sdks_require(scheme: JsonObject, written: JsonObject | None) -> None:
    auth = {"schemes": [scheme], "required": True}
    card = A2A.encode(replace(decode(SMALLEST), auth=auth), ENCODE).document
    assert card.get("securitySchemes") == (None if written is None else {scheme["type"]: written})
    assert decode(card).auth == auth


def test_a_card_is_written_in_the_form_of_0_3_and_read_back_as_the_same_agent() -> None:
    card = downgrade_card(upgrade_card(A2A_0_3))
    assert (card["protocolVersion"], card["url"], card["preferredTransport"]) == (
        "0.3.0",
        "https://recipes.example.com/rpc",
        "JSONRPC",
    )
    for name in ("securitySchemes", "security", "capabilities", "houseStyle", "supportsAuthenticatedExtendedCard"):
        assert card[name] == A2A_0_3[name]
    assert upgrade_card(card) == upgrade_card(A2A_0_3)


def test_an_interface_of_0_3_comes_first_in_the_form_of_0_3() -> None:
    new = {"url": "https://h.example/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    old = {"url": "https://h.example/v0", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    card = downgrade_card(card_with(supportedInterfaces=[new, old]))
    assert card["url"] == "https://h.example/v0"
    assert [item["url"] for item in card["additionalInterfaces"]] == ["https://h.example/v0", "https://h.example/v1"]


def test_a_converted_card_has_no_signature_of_another_form() -> None:
    signature = {"protected": "e30", "signature": "AA"}
    older = {**A2A_0_3, "signatures": [signature]}
    current = {**FULL, "signatures": [signature]}
    written = A2A.encode(decode(older), ENCODE).document
    assert to_older_form(older, written) is older
    assert "signatures" not in to_current_form(older, written)
    assert to_current_form(current, A2A.encode(decode(current), ENCODE).document) is current
    assert "signatures" not in to_older_form(current, A2A.encode(decode(current), ENCODE).document)
