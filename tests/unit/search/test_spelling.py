"""Misspelled words of a query are corrected with words of visible agents, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from support.agents import PUBLIC, agent, ids, opened
from waypost.model.query import Query, Ranking
from waypost.model.record import Example
from waypost.search.index.vocabulary import Vocabulary
from waypost.search.ranker import HybridRanker
from waypost.search.spelling import Spelling
from waypost.search.vectors import Vectors, VectorSpace
from waypost.search.vectors.quantizer import CoarseQuantizer

INVOICE = agent("invoice", "Invoice Desk", "Reads invoices and translates them.", tags=["finance"])
STACK = agent("stack", "Stack Runner", "Deploys a stack of containers.")
EXPORT = [agent(f"export-{number}", f"Exporter {number}", "Can export tables.") for number in range(3)]
EXPERT = agent("expert", "Counsel", "An expert in law.")


class WordList:
    """An embedder whose vocabulary has the word slack."""

    name, dims, is_ready = "words", 8, True

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.eye(1, 8, dtype=np.float32), (len(texts), 1))

    def has_word(self, word: str) -> bool:
        return word == "slack"


def rank(ranker: HybridRanker, text: str, audience: frozenset[str] | None = PUBLIC) -> Ranking:
    return ranker.rank(Query(text=text, limit=10), audience, alive=lambda _: True, now=1e9)


def knowing(*agents: object) -> HybridRanker:
    ranker = HybridRanker(None, [VectorSpace(WordList(), CoarseQuantizer.single(8))])
    ranker.index.open()
    for each in agents:
        ranker.index.put(each)  # type: ignore[arg-type]
    return ranker


@pytest.mark.parametrize("word", ["invoce", "invocie", "invoicee", "invoise", "INVOCE"])
def test_each_kind_of_typo_finds_the_agent_and_says_what_was_searched(word: str) -> None:
    found = rank(opened(INVOICE, STACK), word)
    assert ids(found.hits) == ["invoice"]
    assert found.hits[0].score == rank(opened(INVOICE, STACK), "invoice").hits[0].score
    assert found.warnings == (f"No agent has the word {word.casefold()!r}: 'invoice' was searched for instead.",)
    assert found.corrections == {word.casefold(): "invoice"}


def test_a_word_that_a_model_knows_is_no_typo() -> None:
    ranker = knowing(INVOICE, STACK)
    assert rank(ranker, "slack message").corrections == {}
    assert rank(ranker, "stacj message").corrections == {"stacj": "stack"}


def test_without_a_model_a_query_with_a_known_word_is_not_corrected() -> None:
    ranker = opened(INVOICE, STACK)
    found = rank(ranker, "deploys slack")
    assert (found.corrections, found.spelling) == ({}, {"slack": ("stack",)})
    assert (found.warnings, found.searched_text) == ((), None)


def test_a_letter_that_a_word_of_four_lacks_is_suggested() -> None:
    ranker = opened(INVOICE, STACK, agent("slack", "Slack", "Sends messages to slack."))
    found = rank(ranker, "slak")
    assert (found.corrections, found.spelling) == ({}, {"slak": ("slack",)})
    assert rank(ranker, "stac").spelling == {"stac": ("stack",)}
    assert rank(ranker, "slac").spelling == {"slac": ("slack",)}
    assert rank(ranker, "rest").spelling == {}  # of the same length or shorter are too many


def test_the_more_frequent_word_is_meant() -> None:
    found = rank(opened(*EXPORT, EXPERT), "exprt")
    assert found.corrections == {"exprt": "export"}
    assert found.spelling == {"exprt": ("export", "expert")}


def test_a_word_with_two_letters_swapped_is_meant_before_a_more_frequent_one() -> None:
    rare = agent("texts", "Polyglot", "Makes a translation.")
    often = [agent(f"pay-{number}", f"Payer {number}", "Makes a transaction.") for number in range(3)]
    assert rank(opened(rare, *often), "transaltion").corrections == {"transaltion": "translation"}


def test_a_known_word_is_never_replaced_by_a_more_frequent_one() -> None:
    assert rank(opened(*EXPORT, EXPERT), "expert").corrections == {}


def test_an_id_is_no_misspelled_word() -> None:
    ranker = opened(agent("urn:example:invoce", "Billing", "Writes bills."), INVOICE)
    assert rank(ranker, "urn:example:invoce").corrections == {}
    assert rank(ranker, "invoce").corrections == {}  # its short id


def test_words_of_hidden_agents_are_not_proposed_and_their_typos_not_known() -> None:
    hidden = agent("zeppelin", "Zeppelin", "Flies a zeppelin.", owner="alice", visibility="private")
    ranker = opened(INVOICE, hidden)
    assert rank(ranker, "zepelin").corrections == {}
    assert rank(ranker, "zepelin", PUBLIC | {"user:bob"}).spelling == {}
    for audience in (None, PUBLIC.union(hidden.scopes)):  # an admin, its owner
        assert rank(ranker, "zepelin", audience).corrections == {"zepelin": "zeppelin"}
        assert ids(rank(ranker, "zepelin", audience).hits) == ["zeppelin"]


def test_a_word_of_another_owner_is_not_proposed_though_it_is_in_the_same_segment() -> None:
    mine = agent("mine", "Mine", "Digs holes.", owner="bob", visibility="private")
    theirs = agent("theirs", "Zeppelin", "Flies a zeppelin.", owner="alice", visibility="private")
    ranker = opened(mine, theirs, maintained=True)
    assert rank(ranker, "zepelin", PUBLIC.union(mine.scopes)).spelling == {}
    assert rank(ranker, "holex", PUBLIC.union(mine.scopes)).corrections == {"holex": "holes"}
    assert rank(ranker, "holex", PUBLIC.union(theirs.scopes)).spelling == {}


def test_a_plural_is_corrected_by_its_singular() -> None:
    ranker = opened(agent("bot", "Chatbot", "Holds a dialogue."))
    assert rank(ranker, "dialouges").corrections == {"dialouges": "dialogue"}


def test_words_of_private_examples_are_not_proposed() -> None:
    example = Example(text="Where is my zeppelin", extra={"private": True})
    secret = msgspec.structs.replace(INVOICE, record=msgspec.structs.replace(INVOICE.record, examples=(example,)))
    assert rank(opened(secret), "zepelin").corrections == {}


def test_a_word_that_was_deleted_is_not_proposed() -> None:
    ranker = opened(INVOICE, STACK, maintained=True)
    ranker.index.remove("stack", 5)
    assert rank(ranker, "stacj").corrections == {}


def test_a_text_keeps_its_capitals_and_the_parts_of_words() -> None:
    spelling = Spelling((), {"invoce": "invoice"})
    assert spelling.correct("Read an Invoce, PAY INVOCE; invoces") == "Read an invoice, PAY INVOICE; invoces"


def test_a_vocabulary_finds_its_words() -> None:
    vocabulary = Vocabulary.merge([Vocabulary.of([("über", "beta")]), Vocabulary.of([("beta", "gamma")])])
    assert vocabulary.words.tolist() == [b"beta", b"gamma", "über".encode()]
    assert vocabulary.find(np.array([b"alpha", b"gamma", "über".encode()], dtype="S20")) == ["gamma", "über"]
    assert Vocabulary.of([]).find(np.array([b"alpha"], dtype="S20")) == []
