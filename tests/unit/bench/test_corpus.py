"""The benchmark corpus: realistic, of any size, and deterministic."""

from __future__ import annotations

from itertools import islice

from bench import corpus

from support.records import DECODE
from support.shared import require_shared
from waypost.protocols.profile.codec import PROFILE

require_shared("data/retrieval")


def test_every_document_is_a_valid_profile_and_another_agent() -> None:
    documents = list(corpus.documents(9_000))
    assert len(documents) == 9_000
    assert len({document["id"] for document in documents}) == 9_000
    for document in islice(documents, 0, None, 3):
        PROFILE.decode(document, DECODE)


def test_the_same_number_gives_the_same_documents() -> None:
    assert list(corpus.documents(50)) == list(corpus.documents(200))[:50]


def test_a_repeated_server_has_different_texts() -> None:
    count = len(corpus.servers())
    documents = list(corpus.documents(count + 1))
    first, again = documents[0], documents[count]
    assert first["name"] != again["name"]
    assert first["examples"] != again["examples"]
    assert again["name"].startswith(first["name"])
