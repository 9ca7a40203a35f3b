"""Where the time of a query goes, on an index that `python -m bench.search --only inside --work FOLDER` filled, or a service by
`--only bulk`.

    python -m bench.search.profile --size 100000 --work FOLDER [--questions 300] [--lines 25]

Functions are listed by their own time, then by their time with everything they call. A profiler slows down Python more than
compiled code, so use it to compare functions, not to state times.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
from pathlib import Path

from bench.rankers import default_ranker
from bench.search.questions import distinct
from bench.search.work_folder import index_of, is_filled
from bench.searchers import ask

_WARM_UP = 50


def profile_queries(size: int, folder: Path, questions: int) -> cProfile.Profile:
    ranker = default_ranker(folder)
    if not ranker.index.open():
        raise SystemExit(f"{folder} has no index of this version.")
    asked = distinct(size, _WARM_UP + questions)
    for question in asked[:_WARM_UP]:
        ask(ranker, question.text)
    profile = cProfile.Profile()
    with profile:
        for question in asked[_WARM_UP:]:
            ask(ranker, question.text)
    ranker.close()
    return profile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--lines", type=int, default=25)
    given = parser.parse_args()
    store = given.work / f"store-{given.size}"
    folder = index_of(store) if is_filled(store) else given.work / f"index-{given.size}" / "index"
    profile = profile_queries(given.size, folder, given.questions)
    for order in ("tottime", "cumtime"):
        pstats.Stats(profile).sort_stats(order).print_stats(given.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
