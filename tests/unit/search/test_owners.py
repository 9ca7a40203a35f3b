"""R2: agents of one owner do not fill a result while others match, and are not demoted where there are no others.

With words alone and with the default model.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.agents import agent, ask, ids
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker
from waypost.search.vectors import VectorSpace

ASKED = "translate a contract from German into English"
FIELDS = (
    "rental", "sales", "labour", "licence", "insurance", "loan", "merger", "supply", "partnership", "franchise",
    "agency", "escrow", "pledge", "software", "film", "patent", "shipping", "charter", "consulting", "publishing",
    "catering", "building", "farming", "banking", "energy", "mining", "textile", "hotel", "rail", "dental",
)  # fmt: skip
MANNERS = (
    "Pays heed to {} wording, dates and sums, and asks when in doubt.",
    "Made for {} teams who read clauses every day on paper.",
    "Returns a file with {} notes beside each paragraph, numbered.",
    "Works offline; a glossary of the {} trade is included for nothing.",
    "Checks names, keeps tables whole and knows {} customs of both countries.",
)
HONEST = (
    "Gives you an English text for any German contract you translate, with the layout kept.",
    "Legal desk: it can translate German or French into English, each contract by two people.",
    "For lawyers who translate a contract: German in, English out, terminology checked.",
    "Certified work: contract, deed and certificate, German to English; a stamp comes by post.",
    "Helps small firms to translate a German supplier's contract into plain English.",
    "A contract in German becomes one in English, clause beside clause, to translate and compare.",
    "Our tool can translate from German; choose English, upload the contract, wait a minute.",
    "Ask it to translate your lease or contract from German. English and Dutch are spoken.",
    "Bilingual German and English notaries translate every contract by hand.",
)
ELSEWHERE = ("Forecasts rain for a city.", "Plays contract bridge in the evening.", "Teaches English to children.")


@pytest.fixture(scope="module", params=["words", "model"])
def opened(request: pytest.FixtureRequest) -> Callable[..., HybridRanker]:
    spaces: tuple[VectorSpace, ...] = request.getfixturevalue("spaces") if request.param == "model" else ()

    def opened(*agents: Registration) -> HybridRanker:
        ranker = HybridRanker(None, spaces)
        ranker.index.open()
        for each in agents:
            ranker.index.put(each)
        ranker.index.maintain(1)
        return ranker

    return opened


def many(owner: str, count: int = len(FIELDS)) -> list[Registration]:
    """Different agents of one owner, each written for the question."""
    return [
        agent(
            f"{owner}-{at}",
            f"{field} contracts, German to English".capitalize(),
            f"Can translate a {field} contract from German into English. {MANNERS[at % len(MANNERS)].format(field)}",
            owner=owner,
        )
        for at, field in enumerate(FIELDS[:count])
    ]


def honest() -> list[Registration]:
    return [agent(f"honest-{at}", f"Office {at}", said, owner=f"h{at}") for at, said in enumerate(HONEST)]


def elsewhere() -> list[Registration]:
    return [agent(f"other-{at}", f"Other {at}", said, owner=f"o{at}") for at, said in enumerate(ELSEWHERE)]


def test_thirty_agents_of_one_owner_get_two_of_ten_places_if_others_match_as_well(
    opened: Callable[..., HybridRanker],
) -> None:
    ranker = opened(*many("mallory"), *honest(), *elsewhere())
    plain = ids(ask(ranker, ASKED, limit=10, diversity=False))
    assert sum(each.startswith("mallory") for each in plain) > 2, (
        "they score better: they were written for the question"
    )
    shown = ids(ask(ranker, ASKED, limit=10))
    assert sum(each.startswith("mallory") for each in shown) == 2
    assert sum(each.startswith("honest") for each in shown) == 8


def test_places_without_competition_go_to_the_owner(opened: Callable[..., HybridRanker]) -> None:
    ranker = opened(*many("importer"), *honest()[:2], *elsewhere())
    shown = ids(ask(ranker, ASKED, limit=10))
    assert sum(each.startswith("importer") for each in shown) == 8
    assert {"honest-0", "honest-1"} < set(shown)


def test_worse_matches_of_other_owners_do_not_precede_better_ones(opened: Callable[..., HybridRanker]) -> None:
    ranker = opened(*many("importer", 12), *elsewhere())
    shown = ids(ask(ranker, ASKED, limit=15))
    assert [each.startswith("importer") for each in shown[:12]] == [True] * 12


@pytest.mark.parametrize("owner", ["admin", "anonymous", "urn:waypost:lan"])
def test_admin_anonymous_and_lan_do_not_count_as_one_owner(owner: str) -> None:
    ranker = HybridRanker()
    ranker.index.open()
    for each in (*many(owner, len(MANNERS)), *honest()):
        ranker.index.put(each)
    assert ids(ask(ranker, ASKED, limit=10)) == ids(ask(ranker, ASKED, limit=10, diversity=False))
