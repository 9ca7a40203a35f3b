"""Simhashes of many records at once equal those of each."""

from __future__ import annotations

import random

import numpy as np

from waypost.search.index.document import hash_of
from waypost.search.index.simhash import simhash, simhashes

COMMON = [hash_of(word) for word in ("agent", "mcp", "server", "tool", "use", "data")]


def test_a_record_among_many_has_the_fingerprint_that_it_has_by_itself() -> None:
    dice = random.Random(11)
    sizes = (0, 1, 2, 3, 40, 255, 256, 5000, *(dice.randint(1, 300) for _ in range(60)))
    words = [*COMMON, *(dice.getrandbits(64) for _ in range(200))]
    records = [np.array([dice.choice(words) for _ in range(size)], dtype=np.uint64) for size in sizes]
    records.append(np.array(COMMON, dtype=np.uint64))
    alone = np.array([simhash(record) for record in records])
    for count in (0, 1, 3, len(records)):
        assert np.array_equal(simhashes(records[:count]), alone[:count].reshape(-1, 4))
