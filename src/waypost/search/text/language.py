"""Which language a text is in, where that is plain: by its script, or by small words that only one language has.

It would rather not know than guess. A term of one language says nothing about a text in another, so words are weighed only
between texts that are not known to differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

UNKNOWN: Final = 0
ENGLISH: Final = 1
LANGUAGES: Final = ("", "en", "es", "de", "fr", "pt", "it", "nl", "zh", "ja", "ko", "ru", "ar", "th")

_SMALL_WORDS: Final = {
    "en": "the and for with from that this your are you can which into their what how when where please have will of to "
    "is it an my me i need want find get any who does should would could about by or",
    "es": "el los las del para con una por que como más sobre según entre desde hasta está esta este mis mi quiero "
    "necesito cómo qué y en un la de se lo al su sus muy",
    "de": "der die das und für mit eine einen einem einer ein den dem des von ist sind ich wie auf aus zu im am bei nach "
    "über meine meinen mir nicht auch wird werden kann oder",
    "fr": "le les des du pour avec une un et dans sur qui que est sont par plus je mon ma mes aux ce cette vos votre "
    "nous vous comment ou la de",
    "pt": "os as do da dos das para com uma um por que como mais sobre entre até está este esta meu minha quero preciso "
    "não em ao e o de",
    "it": "il gli dei della delle per con una un che come più su tra sono è questo questa mio mia voglio nel nella di e "
    "le la",
    "nl": "het een voor met van naar niet zijn ik wij deze dit mijn hoe wat op bij uit en de te om aan",
}
# Small words of another language that English keywords hold too: "infrastructure as code", "Los Angeles", "die casting".
_ENGLISH_WORDS: Final = "am as come den des die do dos las los ma met par per plus sus van"
_ENGLISH_TOO: Final = frozenset(_ENGLISH_WORDS.split())
_RANGES: Final = (
    ("ja", r"[\u3040-\u30ff]"),
    ("ko", r"[\uac00-\ud7a3]"),
    ("zh", r"[\u4e00-\u9fff]"),
    ("ru", r"[\u0400-\u04ff]"),
    ("ar", r"[\u0600-\u06ff]"),
    ("th", r"[\u0e00-\u0e7f]"),
)
_SCRIPTS: Final = tuple((language, re.compile(ranges)) for language, ranges in _RANGES)
_ANY_SCRIPT: Final = re.compile("|".join(ranges for _, ranges in _RANGES))
_WORD: Final = re.compile(r"[^\W\d_]+")
_ASCII_WORD: Final = re.compile(r"[A-Za-z]+")
_LOOKED_AT: Final = 2000  # characters: a language shows early
_LEAST_LETTERS: Final = 2
_LEAST_MARKS: Final = 2  # small words that speak for one language
_MARK_SHARE: Final = 0.08  # of all words: prose has three times as many
_SCRIPT_SHARE: Final = 0.2


def _owners() -> Mapping[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language, words in _SMALL_WORDS.items():
        for word in dict.fromkeys(words.split()):
            owners[word] = (*owners.get(word, ()), language)
    return owners


_OWNERS: Final = _owners()


def detect_language(text: str) -> int:
    """An index into LANGUAGES; UNKNOWN when the text does not show it."""
    text = text[:_LOOKED_AT]
    if not text.isascii() and _ANY_SCRIPT.search(text):
        for language, script in _SCRIPTS:
            found = len(script.findall(text))
            if found >= _LEAST_LETTERS and found >= _SCRIPT_SHARE * len(_letters(text)):
                return LANGUAGES.index(language)
    return _by_small_words(text)


def is_not_english(text: str) -> bool:
    """Of a text too short to show its language: a small word or an accent of another language, and no small word of English."""
    words = _WORD.findall(text[:_LOOKED_AT].casefold())
    owned = [(word, owners) for word in words if (owners := _OWNERS.get(word))]
    if any("en" in owners for _, owners in owned):
        return False
    return any(word not in _ENGLISH_TOO for word, _ in owned) or not all(map(str.isascii, words))


def _letters(text: str) -> str:
    return "".join(_WORD.findall(text))


def _by_small_words(text: str) -> int:
    counts: dict[str, float] = {}
    words = (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())
    for owners in filter(None, map(_OWNERS.get, words)):
        mark = 1.0 / len(owners)
        for language in owners:
            counts[language] = counts.get(language, 0.0) + mark
    if not counts:
        return UNKNOWN
    best = max(counts, key=counts.__getitem__)
    marks = counts.pop(best)
    is_plain = marks >= max(_LEAST_MARKS, _MARK_SHARE * len(words)) and marks >= 2 * max(counts.values(), default=0.0)
    return LANGUAGES.index(best) if is_plain else UNKNOWN
