from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt
import pytest

from waypost.search.index.document import hash_of
from waypost.search.index.simhash import (
    SIMHASH_WORDS,
    Hashes,
    Simhashes,
    find_clusters,
    group_duplicates,
    simhash,
)
from waypost.search.ranking.diversity import RankedCandidates, diversify
from waypost.search.text.analyzer import analyse

BASE = (
    "Translates business contracts between German, Spanish and English. Keeps clause numbers, defined terms and layout.",
    "Compares both versions side by side and marks every sentence whose meaning may have moved.",
    "Returns a certified document within an hour, and a list of passages that a lawyer should read again.",
    "Translate this lease from German to English.",
    "Which clauses of the supply agreement changed their meaning in the Spanish version?",
    "translation",
    "legal",
)
OTHERS = (
    "Plans railway journeys across Europe, compares fares and books seats for groups.",
    "Watches warehouse temperatures and warns the shift leader before frozen goods spoil.",
    "Reads X-ray images and drafts a report for the radiologist on duty.",
    "Forecasts the harvest of vineyards from satellite pictures and soil samples.",
)
NICHES = (
    "railway timetables",
    "warehouse temperatures",
    "radiology images",
    "vineyard harvests",
    "court filings",
    "guitar tablature",
    "customs tariffs",
)
NOISE = "quick modern trusted orbit lantern velvet copper meadow harbour signal amber canyon"
WORDS_OF_NOISE = NOISE.split()


def simhash_of_texts(texts: Iterable[str]) -> Hashes:
    return simhash(np.array([hash_of(term) for text in texts for term in analyse(text).split()], dtype=np.uint64))


def fingerprints(*records: tuple[str, ...]) -> Simhashes:
    return np.array([simhash_of_texts(texts) for texts in records])


def label_clusters(records: Simhashes) -> npt.NDArray[np.intp]:
    """A label for each record: the position of the first member of its cluster."""
    labels = np.arange(len(records), dtype=np.intp)
    for members in find_clusters(records, 2):
        labels[members] = members[0]
    return labels


def clone(dice: random.Random) -> tuple[str, ...]:
    """The base with its sentences in another order, every eighth word swapped and a sentence of noise appended."""
    sentences = [f"{sentence}." for text in BASE for sentence in text.split(".") if sentence.strip()]
    dice.shuffle(sentences)
    words = [dice.choice(WORDS_OF_NOISE) if dice.random() < 0.125 else word for word in " ".join(sentences).split()]
    return (" ".join([*words, *dice.sample(WORDS_OF_NOISE, 6)]),)


def ranked(labels: list[int], owners: list[int] | None = None, scores: list[float] | None = None) -> RankedCandidates:
    count = len(labels)
    return RankedCandidates(
        scores=scores or [1 - at / 1000 for at in range(count)],
        cluster_of=clusters_by(labels),
        owners=owners or range(count),
        registered=range(count),
    )


def clusters_by(labels: list[int]) -> Callable[[int], list[int]]:
    return lambda at: [each for each, label in enumerate(labels) if label == labels[at]]


def shown_of(candidates: RankedCandidates, limit: int) -> list[int]:
    return list(islice(diversify(candidates), limit))


def test_two_hundred_clones_are_one_cluster_and_others_are_not() -> None:
    dice = random.Random(3)
    labels = label_clusters(fingerprints(BASE, *(clone(dice) for _ in range(200)), *((text,) for text in OTHERS)))
    assert np.count_nonzero(labels == labels[0]) >= 199
    assert len(set(labels[-len(OTHERS) :].tolist()) | {int(labels[0])}) == len(OTHERS) + 1


def test_a_fingerprint_does_not_know_the_order_of_sentences() -> None:
    forth, back = fingerprints(BASE, BASE[::-1])
    assert np.bitwise_count(forth ^ back).sum() < 40


def test_agents_that_share_only_their_vendors_boilerplate_are_not_one_cluster() -> None:
    texts = [(f"An MCP server of Acme that provides tools to work with {what} via the Acme API.",) for what in NICHES]
    assert len(set(label_clusters(fingerprints(*texts)).tolist())) >= len(NICHES) - 1


def test_short_texts_are_near_duplicates_only_if_equal() -> None:
    records = fingerprints(
        ("Retrieve the weather of a city",),
        ("Retrieve the population of a city",),
        ("Retrieve the weather of a city",),
        ("weather",),
        ("weather",),
        ("rain",),
    )
    assert label_clusters(records).tolist() == [0, 1, 0, 3, 3, 5]


def test_empty_records_are_not_near_duplicates() -> None:
    assert simhash_of_texts([""]).tolist() == [0] * SIMHASH_WORDS
    assert label_clusters(fingerprints(("",), ("An MCP server",), ("",))).tolist() == [0, 1, 2]
    assert label_clusters(np.empty((0, SIMHASH_WORDS), dtype=np.uint64)).tolist() == []


def test_a_fingerprint_is_the_same_from_hashes_and_for_any_length() -> None:
    endless = np.arange(100_000, dtype=np.uint64)
    assert simhash(endless).tolist() == simhash(endless[:4096]).tolist()


def test_labels_depend_on_nothing_but_the_candidates_themselves() -> None:
    dice = random.Random(5)
    records = fingerprints(BASE, *((text,) for text in OTHERS), clone(dice), clone(dice))
    assert label_clusters(records).tolist() == [0, 1, 2, 3, 4, 0, 0]
    assert label_clusters(records[1:]).tolist() == [0, 1, 2, 3, 4, 4]


def test_kin_of_one_are_the_members_of_its_cluster_wherever_they_stand() -> None:
    dice = random.Random(7)
    records = fingerprints(
        *((text,) for text in OTHERS), *(clone(dice) for _ in range(30)), BASE, *([("same words",)] * 9)
    )
    labels, clusters = label_clusters(records).tolist(), group_duplicates(records)
    for at in range(len(records)):
        assert clusters[at] == [each for each, label in enumerate(labels) if label == labels[at]]


def test_at_most_two_of_a_cluster_are_in_each_ten() -> None:
    labels = [0] * 12 + list(range(12, 40))
    shown = shown_of(ranked(labels), 40)
    assert sorted(shown) == list(range(40))
    for start in (0, 10, 20):
        assert [labels[at] for at in shown[start : start + 10]].count(0) == 2
    assert shown[:4] == [0, 1, 12, 13]


def test_a_few_near_duplicates_go_before_candidates_that_score_much_lower() -> None:
    labels = [0, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    scores = [0.5, 0.49, 0.48, 0.4, *[0.1] * 8]
    assert shown_of(ranked(labels, scores=scores), 5) == [0, 1, 3, 2, 4]
    flood = [0] * 9 + list(range(9, 25))
    shown = shown_of(ranked(flood, scores=[0.5] * 9 + [0.1] * 16), 10)
    assert [flood[at] for at in shown].count(0) == 2


def test_the_oldest_of_near_duplicates_is_shown_next_to_the_best_one() -> None:
    scores = [0.9] * 50 + [0.7] * 20 + [0.3]
    labels = [0] * 50 + list(range(50, 70)) + [0]
    candidates = ranked(labels, scores=scores)._replace(registered=[*range(1, 71), 0])
    assert shown_of(candidates, 4) == [0, 70, 50, 51]


def test_the_best_that_is_also_the_original_is_followed_by_the_next_best() -> None:
    assert shown_of(ranked([0, 0, 0, 3, 4]), 5) == [0, 1, 3, 4, 2]


def test_an_early_registration_of_no_relevance_has_no_claim() -> None:
    candidates = ranked([0, 0, 0, 3], scores=[0.9, 0.9, 0.05, 0.04])._replace(registered=[3, 2, 1, 0])
    assert shown_of(candidates, 4) == [1, 0, 3, 2]  # of the two that are relevant the earlier one is first


def test_two_of_a_kind_keep_their_places() -> None:
    candidates = ranked([0, 1, 0, 3])._replace(registered=[9, 1, 0, 2])
    assert shown_of(candidates, 4) == [0, 1, 2, 3]


def test_nothing_is_lost_when_all_are_of_one_cluster() -> None:
    assert shown_of(ranked([0] * 25), 25) == list(range(25))
    assert shown_of(ranked([0] * 25), 7) == list(range(7))
    assert shown_of(ranked([]), 10) == []


def test_a_registry_of_one_owner_lists_its_different_agents_in_order() -> None:
    assert shown_of(ranked(list(range(30)), owners=[7] * 30), 10) == list(range(10))


def test_a_flood_of_one_owner_does_not_displace_equally_good_agents() -> None:
    owners = [1] * 50 + [2, 3]
    scores = [0.9] * 50 + [0.85, 0.82]
    assert shown_of(ranked(list(range(52)), owners=owners, scores=scores), 10)[:5] == [0, 1, 50, 51, 2]


def test_the_best_owner_is_not_ranked_behind_strangers() -> None:
    owners = [1] * 4 + [2, 3]
    scores = [0.9, 0.89, 0.88, 0.87, 0.3, 0.2]
    assert shown_of(ranked(list(range(6)), owners=owners, scores=scores), 6) == list(range(6))


@pytest.mark.parametrize("seed", range(20))
def test_every_candidate_is_shown_once_whatever_the_crowd(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(1, 120)
    candidates = RankedCandidates(
        scores=sorted((dice.random() for _ in range(count)), reverse=True),
        cluster_of=clusters_by([dice.randint(0, count // 3) for _ in range(count)]),
        owners=[dice.randint(0, 4) for _ in range(count)],
        registered=[dice.randint(0, 10) for _ in range(count)],
    )
    shown = shown_of(candidates, count)
    assert sorted(shown) == list(range(count))
    assert shown_of(candidates, 10) == shown[:10]
    assert shown_of(candidates, count) == shown
