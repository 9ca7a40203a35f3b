"""What a question only quotes: a title, a city, a key. It is what the agent is to work on, and says little of what it does.

It knows marks and words, and refuses to know what a quoted text means. Somebody who asks in few words and puts one of them
into quotation marks insists on it: that is no quotation.
"""

from __future__ import annotations

import re
from typing import Final

from waypost.late import late_pattern
from waypost.search.text import query_terms

LEAST_BESIDE: Final = 4  # terms outside the marks: with fewer, the marks insist
LONGEST: Final = 80  # characters between two marks: more is no quotation, but a mark that was forgotten
_MARK: Final = re.compile("[\"\u201c\u201e\u00ab\u300c]|(?<!\\w)['\u2018]")
_SOME: Final = f"{{1,{LONGEST}}}"
_QUOTED: Final = late_pattern(
    f'"[^"]{_SOME}"|[\u201c\u201e][^\u201c\u201d]{_SOME}[\u201c\u201d]|\u00ab[^\u00bb]{_SOME}\u00bb|\u300c[^\u300d]{_SOME}\u300d'
    rf"|(?<!\w)'(?!\s)[^']{_SOME}(?<!\s)'(?!\w)"  # not the apostrophe of "Ann's" or "the students' work"
    f"|(?<!\\w)\u2018(?!\\s)[^\u2018\u2019]{_SOME}(?<!\\s)\u2019(?!\\w)"
)


def quoted_terms(text: str) -> frozenset[str]:
    """The terms of a question that stand in quotation marks and nowhere else."""
    if (text.isascii() and '"' not in text and "'" not in text) or not _MARK.search(text):
        return frozenset()
    quoted = _QUOTED.findall(text)
    if not quoted:
        return frozenset()
    beside = query_terms(_QUOTED.sub(" ", text))
    if len(beside) < LEAST_BESIDE:
        return frozenset()
    return frozenset(term for each in quoted for term in query_terms(each)).difference(beside)
