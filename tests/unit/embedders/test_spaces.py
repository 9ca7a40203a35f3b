"""The two default vector spaces: vectors do not depend on the batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import build_graph
from support.sentence_model import ODD, SENTENCES, encoders, model, tokenizer
from waypost import limits
from waypost.embedders import use_model
from waypost.embedders.lazy_embedder import Encode
from waypost.embedders.use_encoder import StaticEncoder, TokenEncoder, UseNetwork
from waypost.errors import Unavailable
from waypost.search.vectors import Vectors

TEXTS = [*(text for texts in SENTENCES.values() for text in texts), *ODD]


@pytest.fixture(params=[use_model.NETWORK, use_model.STATIC])
def encode(request: pytest.FixtureRequest) -> Encode:
    return encoders()[request.param]


def test_vectors_are_of_unit_length(encode: Encode) -> None:
    made = encode(TEXTS)
    assert made.shape == (len(TEXTS), use_model.DIMS)
    assert made.dtype == np.float32
    assert np.linalg.norm(made, axis=1) == pytest.approx(1, abs=1e-5)


def test_a_vector_does_not_depend_on_the_rest_of_its_batch(encode: Encode) -> None:
    together = encode(TEXTS)
    alone = np.vstack([encode([text]) for text in TEXTS])
    assert together == pytest.approx(alone, abs=1e-5)
    assert encode(TEXTS[::-1])[::-1] == pytest.approx(alone, abs=1e-5)
    assert np.array_equal(together, encode(TEXTS))


def test_an_empty_text_has_no_direction(encode: Encode) -> None:
    made = encode(["", "find a flight", " \n"])
    assert not made[0].any()
    assert not made[2].any()
    assert made[1] == pytest.approx(encode(["find a flight"])[0], abs=1e-5)
    assert encode([]).shape == (0, use_model.DIMS)


def test_tokens_beyond_the_limit_do_not_change_the_vector(encode: Encode) -> None:
    long = "agent " * (limits.EMBEDDER_TOKENS + 10)
    assert np.array_equal(encode([long]), encode([long + "and something else"]))


@pytest.mark.parametrize("language", ["zh", "es", "de"])
def test_a_sentence_is_nearest_to_its_own_translation(language: str) -> None:
    encode = encoders()[use_model.NETWORK]
    nearness = encode(SENTENCES[language]) @ encode(SENTENCES["en"]).T
    assert nearness.argmax(axis=1).tolist() == list(range(6))
    assert nearness.argmax(axis=0).tolist() == list(range(6))


def test_like_sentences_are_nearer_than_others(encode: Encode) -> None:
    made = encode(["Convert euros to dollars", "currency conversion and exchange rates", "walk my dog in the park"])
    assert made[0] @ made[1] > made[0] @ made[2] + 0.1


def test_the_projection_preserves_nearest_neighbours() -> None:
    whole = TokenEncoder(tokenizer(), UseNetwork(model(), is_projected=False).encode, 512)(TEXTS)
    carried = encoders()[use_model.NETWORK](TEXTS)
    assert np.corrcoef(_angles(whole), _angles(carried))[0, 1] > 0.95


def test_the_table_of_means_is_as_good_as_the_vectors_it_was_made_of() -> None:
    table = use_model.condense_table(model().scores, model().table, np.eye(512, dtype=np.float32))
    whole = TokenEncoder(tokenizer(), StaticEncoder(*table).encode, 512)(TEXTS)
    carried = whole @ use_model.load_projection(use_model.STATIC)
    carried /= np.linalg.norm(carried, axis=1, keepdims=True)
    assert (carried * encoders()[use_model.STATIC](TEXTS)).sum(axis=1).min() > 0.99


def test_many_threads_get_the_same_as_one() -> None:
    network = UseNetwork(model())
    pieces = [tokenizer().encode(text, 256) for text in TEXTS]
    wanted = network.encode(pieces)
    got: list[Vectors] = []
    threads = [threading.Thread(target=lambda: got.append(network.encode(pieces))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 4
    assert all(np.array_equal(each, wanted) for each in got)


def test_a_part_is_encoded_in_its_context_and_the_whole_as_by_itself(encode: Encode) -> None:
    text, part = "Book a flight from Berlin to Lisbon and translate this contract", "translate this contract"
    whole, found = encoders_parts(encode, text, part)
    assert whole == pytest.approx(encode([text])[0], abs=1e-5)
    assert found @ encode([part])[0] > 0.8 > whole @ encode([part])[0]


def encoders_parts(encode: Encode, text: str, part: str) -> Vectors:
    assert isinstance(encode, TokenEncoder)
    return encode.encode_parts(text, [part])


def test_a_batch_of_more_tokens_than_fit_at_once_changes_no_vector() -> None:
    network = UseNetwork(model())
    texts = [np.arange(start, start + 100).tolist() for start in range(10, 2 * limits.EMBEDDER_BATCH_TOKENS, 100)]
    alone = np.vstack([network.encode([text]) for text in texts])
    assert network.encode(texts) == pytest.approx(alone, abs=1e-5)


def test_the_graph_is_what_its_script_writes() -> None:
    assert build_graph.build_model().SerializeToString(deterministic=True) == use_model.load_graph()


def test_a_graph_that_onnxruntime_refuses_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.embedders.use_encoder.load_graph", lambda: b"nonsense")
    with pytest.raises(Unavailable, match="cannot be used"):
        UseNetwork(model())


@pytest.mark.parametrize("part", [use_model.NETWORK, use_model.STATIC])
def test_landmarks_belong_to_their_space(part: str) -> None:
    landmarks = use_model.load_quantizer(part)
    assert (landmarks.lists, landmarks.dims) == (2048, use_model.DIMS)
    made = encoders()[part]([text for texts in SENTENCES.values() for text in texts])
    assert np.median((made @ landmarks.centres.T).max(axis=1)) > 0.4
    assert len(np.unique(landmarks.lists_of(made)[:, 0])) > len(made) / 3


def _angles(vectors: Vectors) -> Vectors:
    return np.asarray((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])
