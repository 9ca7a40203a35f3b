"""Cards signed by the A2A SDK verify here, and cards signed here verify there."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict

from support.signing import NOW, card, key_of, sign_card
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import check_card

RICH = card(
    description="Liest Rechnungen – auch schräge.",
    provider={"organization": "Acme", "url": "https://acme.example"},
    documentationUrl="https://acme.example/docs",
    capabilities={
        "streaming": False,
        "extensions": [{"uri": "urn:x", "required": False, "params": {"depth": 3, "rate": 0.5, "name": "é"}}],
    },
    securitySchemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
    securityRequirements=[{"schemes": {"key": {"list": ["read"]}}}],
)


def verified_here(document: dict[str, Any]) -> str:
    [found] = check_card(document, [BoundKey(key_of("p-256").public, "pin", "k")], NOW)
    return found.state


@pytest.mark.parametrize("document", [card(), RICH, card(capabilities={}), card(skills=[])])
def test_the_signature_of_the_sdk_is_verified_here(document: dict[str, Any]) -> None:
    signer = create_agent_card_signer(
        key_of("p-256").native,  # type: ignore[arg-type]
        {"kid": "k", "alg": "ES256", "jku": "https://acme.example/keys", "typ": "JOSE"},
    )
    signed = MessageToDict(signer(ParseDict(document, AgentCard())))
    assert verified_here(signed) == "passed"
    assert verified_here({**signed, "name": "Other"}) == "failed"


BOTH = card(
    supportedInterfaces=[
        {"url": "https://acme.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://acme.example/older", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": "https://acme.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "0.3"},
    ],
    capabilities={"extendedAgentCard": True},
    skills=[
        {
            "id": "read",
            "name": "Read",
            "description": "Reads one.",
            "tags": ["invoice"],
            "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
        }
    ],
    securitySchemes={
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "login": {
            "oauth2SecurityScheme": {
                "flows": {"clientCredentials": {"tokenUrl": "https://acme.example/token", "scopes": {"read": "all"}}}
            }
        },
    },
    securityRequirements=[{"schemes": {"login": {"list": ["read"]}}}],
)


def served_by_the_sdk(document: dict[str, Any]) -> dict[str, Any]:
    """The card as the SDK signs and then serves it: with the members of 0.3, if an interface speaks 0.3."""
    signer = create_agent_card_signer(
        key_of("p-256").native,  # type: ignore[arg-type]
        {"kid": "k", "alg": "ES256", "jku": None, "typ": "JOSE"},
    )
    return agent_card_to_dict(signer(ParseDict(document, AgentCard())))


def test_a_signed_card_is_verified_as_the_sdk_serves_it() -> None:
    served = served_by_the_sdk(BOTH)
    assert {"url", "additionalInterfaces", "preferredTransport", "protocolVersion", "security"} <= served.keys()
    assert "type" in served["securitySchemes"]["key"]
    assert "security" in served["skills"][0]
    assert verified_here(served) == "passed"


@pytest.mark.parametrize(
    "flows",
    [
        {
            "authorizationCode": {
                "authorizationUrl": "https://acme.example/login",
                "tokenUrl": "https://acme.example/token",
                "scopes": {"read": "all"},
                "pkceRequired": True,
            }
        },
        {
            "deviceCode": {
                "deviceAuthorizationUrl": "https://acme.example/device",
                "tokenUrl": "https://acme.example/token",
                "scopes": {"read": "all"},
            }
        },
        {"clientCredentials": {"tokenUrl": "https://acme.example/token", "scopes": {}}},
    ],
)
def test_members_of_0_3_may_tell_less_than_what_is_signed(flows: dict[str, Any]) -> None:
    document = BOTH | {"securitySchemes": {"login": {"oauth2SecurityScheme": {"flows": flows}}}}
    served = served_by_the_sdk(document)
    scheme = served["securitySchemes"]["login"]
    assert scheme["flows"] != scheme["oauth2SecurityScheme"]["flows"]
    assert verified_here(served) == "passed"


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://evil.example"},
        {"preferredTransport": "GRPC"},
        {"additionalInterfaces": [{"url": "https://evil.example", "transport": "GRPC"}]},
        {"additionalInterfaces": "text"},
        {"additionalInterfaces": None},
        {"protocolVersion": "1.0"},
        {"protocolVersion": "0.9"},
        {"security": []},
        {"security": [{"login": []}]},
        {"supportsAuthenticatedExtendedCard": False},
        {"supportsAuthenticatedExtendedCard": 1},
        {"skills": [{**BOTH["skills"][0], "security": []}]},
        {"securitySchemes": {**BOTH["securitySchemes"], "key": {"type": "http", "scheme": "basic"}}},
        {
            "securitySchemes": {
                **BOTH["securitySchemes"],
                "key": {**BOTH["securitySchemes"]["key"], "type": "apiKey", "in": "query", "name": "X-Key"},
            }
        },
        {
            "securitySchemes": {
                **BOTH["securitySchemes"],
                "key": {**BOTH["securitySchemes"]["key"], "type": "apiKey", "in": "header", "name": "X-Key", "x": 1},
            }
        },
        {
            "securitySchemes": {
                **BOTH["securitySchemes"],
                "key": {**BOTH["securitySchemes"]["key"], "in": "header"},
            }
        },
        {"unknown": 1},
        {"name": "Other"},
    ],
)
def test_members_of_0_3_that_do_not_repeat_what_is_signed_fail(change: dict[str, Any]) -> None:
    served = served_by_the_sdk(BOTH) | change
    assert verified_here(served) == "failed"


@pytest.mark.parametrize(
    "change",
    [
        {"preferredTransport": "JSONRPC"},
        {"protocolVersion": "0.3"},
        {"additionalInterfaces": [{"url": "https://acme.example/a2a", "transport": "JSONRPC"}]},
    ],
)
def test_members_of_0_3_without_a_url_fail(change: dict[str, Any]) -> None:
    one = card(supportedInterfaces=[BOTH["supportedInterfaces"][0]])  # the SDK adds nothing to it
    assert verified_here(served_by_the_sdk(one)) == "passed"
    assert verified_here(served_by_the_sdk(one) | change) == "failed"


@pytest.mark.parametrize("document", [card(), RICH])
def test_our_signature_is_verified_by_the_sdk(document: dict[str, Any]) -> None:
    verify = create_signature_verifier(lambda kid, jku: key_of("p-256").public.native, ["ES256"])  # type: ignore[arg-type,return-value]
    signed = sign_card(document, key_of("p-256"), kid="k")
    verify(ParseDict(signed, AgentCard()))
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict({**signed, "name": "Other"}, AgentCard()))
