"""Facts of a record that constraints match against: regions, languages, authentication methods, latency, price.

The profile does not define the members of `constraints` and `auth`, so several names and shapes are understood for
each, and others are ignored. A fact is a short string `kind:value`. Most records have none. `registry.constraints`
matches them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from waypost.model.names import fold
from waypost.model.record import AgentRecord

REGION: Final = "region"
LANGUAGE: Final = "language"
AUTH: Final = "auth"
LATENCY: Final = "latency"
COST: Final = "cost"
EVERYWHERE: Final = "*"
DEFAULT_CURRENCY: Final = "usd"

_FACTS: Final = 64  # of one record
FACT_CHARS: Final = 64
_REGIONS: Final = ("region", "regions")
_LANGUAGES: Final = ("language", "languages", "locale", "locales")
_ANY: Final = frozenset(("*", "global", "worldwide", "any", "all", "multilingual"))

# Upper bounds come first: a caller with a limit needs the worst case.
_LATENCIES: Final = (
    "max_latency_ms", "latency_ms_p99", "latency_p99_ms", "p99_latency_ms", "latency_ms_p95", "latency_p95_ms",
    "p95_latency_ms", "latency_ms", "latency", "latency_ms_p50",
)  # fmt: skip
_LATENCY_PARTS: Final = ("max_ms", "p99_ms", "p95_ms", "ms", "p50_ms")
_PRICES: Final = (
    "cost", "price", "pricing", "max_cost", "cost_per_call", "price_per_call", "cost_per_request", "price_per_request",
)  # fmt: skip
_PRICE_PARTS: Final = ("amount", "price", "value", "per_call", "per_request", "max")
_CALLS: Final = frozenset(("call", "request", "task", "invocation", "query"))
_SYMBOLS: Final = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy"}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?(ms|s)\Z")
_AMOUNT: Final = re.compile(
    r"([a-z]{3}|[$€£¥])? ?(\d{1,12}(?:\.\d{1,9})?) ?([a-z]{3}|[$€£¥])?"
    r"(?: ?(?:/|per) ?(?:call|request|task|invocation|query))?\Z"
)
_PRICED_IN: Final = re.compile(r"(?:cost|price)_per_(?:call|request|task)_([a-z]{3})\Z")
_AUTH_NAMES: Final = {
    "bearertoken": "bearer", "jwt": "bearer", "mutualtls": "mtls", "clientcertificate": "mtls",
    "openidconnect": "oidc", "oauth": "oauth2", "oauth20": "oauth2", "anonymous": "none", "open": "none",
    "noauth": "none", "null": "none",
}  # fmt: skip
_TIMED: Final = frozenset(_LATENCIES)
_NAMED: Final = frozenset((*_REGIONS, *_LANGUAGES, *_LATENCIES, *_PRICES))


def facts_of(record: AgentRecord) -> tuple[str, ...]:
    """Return the facts of a record, each once. Fast for records without facts."""
    extra = record.extra if record.extra and not _NAMED.isdisjoint(record.extra) else None
    stated: list[str] = []
    if record.constraints or extra:
        places = tuple(place for place in (record.constraints, extra) if place)
        stated += [f"{REGION}:{value}" for value in _named(places, _REGIONS)]
        stated += [f"{LANGUAGE}:{language_tag(value)}" for value in _named(places, _LANGUAGES)]
        for place in places:
            if not _TIMED.isdisjoint(place):
                stated += _latency(places)
                break
        stated += _price(places)
    for tag in record.tags:
        if tag.startswith("lang-") and len(tag) > 5:
            stated.append(f"{LANGUAGE}:{fold(tag[5:])}")
    for example in record.examples:
        if example.language:
            stated += (f"{LANGUAGE}:{language_tag(value)}" for value in texts_of(example.language))
    if record.auth is not None:
        stated += [f"{AUTH}:{name}" for name in _auth(record.auth)]
    return tuple(dict.fromkeys(stated))[:_FACTS] if stated else ()


def values_of(facts: Iterable[str], kind: str) -> list[str]:
    """Return the values of one kind, such as the languages."""
    return [value for fact in facts for named, _, value in (fact.partition(":"),) if named == kind]


def texts_of(value: Any) -> list[str]:
    """Return the folded strings of a comma-separated string, an array, or an object with `allowed`, in order."""
    if isinstance(value, str):
        items = value[: 4 * FACT_CHARS].split(",")
    elif isinstance(value, list | tuple):
        items = [item for item in value[:_FACTS] if isinstance(item, str)]
    elif isinstance(value, dict) and not isinstance(value.get("allowed"), dict):
        return texts_of(value.get("allowed"))
    else:
        return []
    folded = (fold(item.strip()) for item in items)
    return [EVERYWHERE if item in _ANY else item for item in folded if item and len(item) <= FACT_CHARS]


def language_tag(folded: str) -> str:
    return folded.replace("_", "-")


def auth_name(text: str) -> str:
    """Normalize an authentication method: `apiKey`, `api_key` and `api-key` are `apikey`."""
    plain = "".join(filter(str.isalnum, fold(text)))[:FACT_CHARS]
    return _AUTH_NAMES.get(plain, plain)


def currency_name(text: str) -> str:
    text = fold(text.strip())
    return _SYMBOLS.get(text, text)


def amount_of(value: Any) -> float | None:
    """Return a finite number of 0 or more, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


_Places = tuple[Mapping[str, Any], ...]


def _named(places: _Places, names: Iterable[str]) -> list[str]:
    return [text for place in places for name in names if name in place for text in texts_of(place[name])]


def _latency(places: _Places) -> Iterator[str]:
    for name in _LATENCIES:
        for place in places:
            read = _milliseconds(place[name]) if name in place else None
            if read is not None:
                yield f"{LATENCY}:{read!r}"
                return


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, dict):
        found = (amount_of(value.get(part)) for part in _LATENCY_PARTS)
        return next((amount for amount in found if amount is not None), None)
    if isinstance(value, str):
        match = _DURATION.match(fold(value.strip()[:FACT_CHARS]))
        return None if match is None else float(match[1]) * (1000.0 if match[2] == "s" else 1.0)
    return amount_of(value)


def _price(places: _Places) -> Iterator[str]:
    for place in places:
        for name, value in place.items():
            match = _PRICED_IN.match(name) if "_per_" in name else None
            currency = match[1] if match else place.get("currency")
            read = _priced(value, currency) if match or name in _PRICES else None
            if read is not None:
                yield f"{COST}:{read[0]}:{read[1]!r}"
                return


def _priced(value: Any, currency: Any) -> tuple[str, float] | None:
    """Return (currency, amount) of one call; None for prices per month or token."""
    if isinstance(value, dict):
        if value and all(isinstance(part, dict) for part in value.values()):
            return _dearest([_priced(part, currency) for part in value.values()])
        if fold(str(value.get("model", ""))) == "free":
            return EVERYWHERE, 0.0
        per = value.get("per", value.get("unit", "call"))
        if not isinstance(per, str) or fold(per) not in _CALLS:
            return None
        amounts = (amount_of(value.get(part)) for part in _PRICE_PARTS)
        amount = next((found for found in amounts if found is not None), None)
        return _with_currency(amount, value.get("currency", currency))
    if isinstance(value, str):
        return _written_price(fold(value.strip()[:FACT_CHARS]), currency)
    return _with_currency(amount_of(value), currency)


def _dearest(prices: list[tuple[str, float] | None]) -> tuple[str, float] | None:
    """Return the highest of several prices, if all are known and in one currency."""
    known = [price for price in prices if price is not None]
    paid = [price for price in known if price[1]]
    if len(known) < len(prices) or len({currency for currency, _ in paid}) > 1:
        return None
    return max(paid, key=lambda price: price[1], default=(EVERYWHERE, 0.0))


def _written_price(text: str, currency: Any) -> tuple[str, float] | None:
    if text == "free":
        return EVERYWHERE, 0.0
    match = _AMOUNT.match(text)
    return None if match is None else _with_currency(float(match[2]), match[1] or match[3] or currency)


def _with_currency(amount: float | None, currency: Any) -> tuple[str, float] | None:
    if not amount:
        return None if amount is None else (EVERYWHERE, 0.0)  # zero is the same in every currency
    name = currency_name(currency) if isinstance(currency, str) else DEFAULT_CURRENCY
    return (name, amount) if 0 < len(name) <= 8 and ":" not in name else None


def _auth(auth: Any) -> Iterator[str]:
    """Yield the schemes by type, and `none` if no authentication is required."""
    if isinstance(auth, dict):
        schemes = auth.get("schemes", auth.get("methods"))
        found = [*_schemes(schemes if isinstance(schemes, list) else [auth])]
        yield from found
        if auth.get("required") is False or (isinstance(schemes, list) and not schemes):
            yield "none"
    else:
        yield from _schemes(auth if isinstance(auth, list) else [auth])


def _schemes(schemes: list[Any]) -> Iterator[str]:
    for scheme in schemes[:_FACTS]:
        parts = [scheme.get("type"), scheme.get("scheme")] if isinstance(scheme, dict) else [scheme]
        for part in parts:
            name = auth_name(part) if isinstance(part, str) else ""
            if name:
                yield name
