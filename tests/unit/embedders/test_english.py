"""The English sentence model that ships with Waypost."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from support.sentence_model import ODD, SENTENCES
from waypost import limits
from waypost.embedders import use_model
from waypost.embedders.choice import choose_embedder
from waypost.embedders.english_encoder import ENGLISH, EnglishNetwork, load_english
from waypost.embedders.use_encoder import TokenEncoder
from waypost.errors import Unavailable
from waypost.search.index.index import encode_agents
from waypost.search.vectors import SpaceRole, Vectors

TEXTS = [*SENTENCES["en"], *ODD]


def encoder() -> TokenEncoder:
    found = load_english()[ENGLISH]
    assert isinstance(found, TokenEncoder)
    return found


def test_vectors_are_of_unit_length_and_those_of_empty_texts_zero() -> None:
    made = encoder()([*TEXTS, "", " \n"])
    assert made.shape == (len(TEXTS) + 2, use_model.DIMS)
    assert made.dtype == np.float32
    assert np.linalg.norm(made[:-2], axis=1) == pytest.approx(1, abs=1e-5)
    assert not made[-2:].any()
    assert encoder()([]).shape == (0, use_model.DIMS)


def test_a_vector_is_the_same_to_the_last_bit_whatever_else_is_in_its_batch() -> None:
    encode = encoder()
    alone = np.vstack([encode([text]) for text in TEXTS])
    assert np.array_equal(encode(TEXTS), alone)
    assert np.array_equal(encode(TEXTS[::-1])[::-1], alone)


def test_a_question_is_nearest_to_the_agent_that_answers_it() -> None:
    questions = ["is it going to rain tomorrow", "turn this into french", "what can I cook tonight", "pay my landlord"]
    agents = [
        "Weather service. Forecasts of temperature and precipitation for any place.",
        "Translator. Translates documents between languages.",
        "Recipe finder. Suggests dishes for the ingredients at hand.",
        "Bank transfers. Sends money from your account.",
    ]
    nearness = encoder()(questions) @ encoder()(agents).T
    assert nearness.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_case_accents_and_widths_do_not_matter() -> None:
    plain = encoder()(["resume of a cafe visit"])
    assert np.array_equal(encoder()(["Résumé of a CAFÉ visit"]), plain)
    assert np.array_equal(encoder()(["re\u0301sume\u0301 of a cafe\u0301 visit"]), plain)


def test_tokens_beyond_the_limit_do_not_change_the_vector() -> None:
    long = "agent " * (limits.EMBEDDER_ENGLISH_TOKENS + 10)
    assert np.array_equal(encoder()([long]), encoder()([long + "and something else"]))


def test_a_part_is_encoded_in_its_context_and_the_whole_as_by_itself() -> None:
    text, part = "Book a flight from Berlin to Lisbon and translate this contract", "translate this contract"
    whole, found = encoder().encode_parts(text, [part])
    assert whole == pytest.approx(encoder()([text])[0], abs=1e-5)
    wanted = encoder()([part])[0]
    assert found @ wanted > whole @ wanted


def test_many_threads_get_the_same_as_one() -> None:
    wanted, got = encoder()(TEXTS), list[Vectors]()
    threads = [threading.Thread(target=lambda: got.append(encoder()(TEXTS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 4
    assert all(np.array_equal(each, wanted) for each in got)


def test_landmarks_belong_to_the_space() -> None:
    landmarks = use_model.load_quantizer(ENGLISH)
    assert (landmarks.lists, landmarks.dims) == (2048, use_model.DIMS)
    made = encoder()(SENTENCES["en"])
    assert np.median((made @ landmarks.centres.T).max(axis=1)) > 0.4


def test_an_agent_has_a_vector_of_its_description_and_one_of_each_of_many_examples() -> None:
    (space,) = [each for each in choose_embedder("auto", None).spaces if each.role == SpaceRole.ENGLISH]
    few = ("Translator. Translates texts.", "Bonjour", "an example", "a third one")
    many = (*few, "a skill of another kind")
    of_few, of_many = encode_agents(space, [few, many])
    assert np.array_equal(of_few, encoder()(list(few[:1])))
    assert np.array_equal(of_many, encoder()(list(many)))


def test_a_damaged_model_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: EnglishNetwork, graph: bytes) -> None:
        raise RuntimeError("bad graph")

    monkeypatch.setattr(EnglishNetwork, "__init__", refuse)
    load_english.cache_clear()
    with pytest.raises(Unavailable, match=r"bad graph.*Reinstall"):
        load_english()
