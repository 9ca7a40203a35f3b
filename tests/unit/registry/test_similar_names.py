"""R5: names that could be confused with a verified agent of another owner."""

from __future__ import annotations

import re

import pytest
from bench.corpus import read_json_lines

from support.shared import require_shared
from waypost.model.registration import VERIFIED_FACT, CatalogEntry
from waypost.registry.catalog.catalog import ConfusableNames


def entry(
    agent_id: str, name: str, owner: str = "alice", visibility: str = "public", *, verified: bool = True
) -> CatalogEntry:
    facts = (VERIFIED_FACT,) if verified else ()
    return CatalogEntry(agent_id, name, owner, visibility, "active", "", 1, 0.0, None, (), (), (), (), facts=facts)


def known(*entries: CatalogEntry) -> ConfusableNames:
    lookalikes = ConfusableNames()
    for each in entries:
        lookalikes.put(each)
    return lookalikes


@pytest.mark.parametrize(
    "name",
    [
        "PayPal Support",
        "paypal-support",
        "Paypa1 Support",
        "PayPaI Support",
        "Pаypаl Support",  # Cyrillic letters
        "Ρaypal Support",  # a Greek one
        "PayPal\u200b Support",
        "P\u0430yPal.Support",
        "PáyPal Support",
    ],
)
def test_a_name_that_looks_like_a_verified_one_is_found(name: str) -> None:
    lookalikes = known(entry("a", "PayPal Support"))
    assert lookalikes.find(name, "mallory") == "PayPal Support"
    assert lookalikes.find(name, "alice") is None  # an owner may use its own name twice


@pytest.mark.parametrize("name", ["PayPal", "Support PayPal", "Paypal Supporter", "Payroll Support", "pal"])
def test_other_names_are_left_alone(name: str) -> None:
    assert known(entry("a", "PayPal Support"), entry("b", "pal")).find(name, "mallory") is None


def test_only_public_verified_agents_count_and_only_while_they_are_there() -> None:
    hidden = entry("h", "PayPal Support", visibility="private")
    claimed = entry("c", "PayPal Support", verified=False)
    assert known(hidden, claimed).find("PayPal Support", "mallory") is None
    shown = entry("a", "PayPal Support")
    lookalikes = known(shown, entry("b", "PayPal-Support", "bob"))
    lookalikes.remove(shown)
    assert lookalikes.find("PayPal Support", "mallory") == "PayPal-Support"
    assert lookalikes.find("PayPal Support", "bob") is None


def test_of_ten_thousand_honest_names_hardly_any_is_taken_for_another() -> None:
    """At most one in a thousand, with every name verified: those of servers and tools that exist, and of their owners."""
    folder = require_shared("data/retrieval")
    names: dict[str, str] = {}
    for each in ("mcp_servers_real", "metatool", "sealtools"):
        for row in read_json_lines(folder / each / "corpus.jsonl"):
            for name in (row["name"], *row["id"].rpartition("/")[::2]):
                names.setdefault(re.sub(r"[\W_]+", "", name).casefold(), name)  # one of those that read the same
    honest = [name for plain, name in names.items() if plain]
    lookalikes = known(*(entry(str(at), name, owner=f"owner {at}") for at, name in enumerate(honest)))
    taken = [name for at, name in enumerate(honest) if lookalikes.find(name, f"owner {at}") is not None]
    assert len(honest) >= 10_000
    assert len(taken) <= len(honest) / 1000
