"""The default sentence model, loaded once for all tests of a process, and texts to try it with."""

from __future__ import annotations

from functools import cache

from waypost.embedders.lazy_embedder import Encode
from waypost.embedders.use_encoder import load_encoders
from waypost.embedders.use_model import Tokenizer, UseModel, UsePackage, find_package, load_model, load_tokenizer

SENTENCES = {
    "en": (
        "Book a flight from Berlin to Lisbon",
        "Translate this contract into French",
        "What is the weather like tomorrow?",
        "Find a recipe for vegetarian lasagne",
        "Transfer money to my savings account",
        "Summarise this scientific paper",
    ),
    "zh": (
        "预订一张从柏林到里斯本的机票",
        "把这份合同翻译成法语",
        "明天天气怎么样？",
        "找一个素食千层面的食谱",
        "把钱转到我的储蓄账户",
        "总结这篇科学论文",
    ),
    "es": (
        "Reserva un vuelo de Berlín a Lisboa",
        "Traduce este contrato al francés",
        "¿Qué tiempo hará mañana?",
        "Busca una receta de lasaña vegetariana",
        "Transfiere dinero a mi cuenta de ahorros",
        "Resume este artículo científico",
    ),
    "de": (
        "Buche einen Flug von Berlin nach Lissabon",
        "Übersetze diesen Vertrag ins Französische",
        "Wie wird das Wetter morgen?",
        "Finde ein Rezept für vegetarische Lasagne",
        "Überweise Geld auf mein Sparkonto",
        "Fasse diesen wissenschaftlichen Artikel zusammen",
    ),
}

ODD = (
    "x",
    "x" * 500,
    "ＡＢＣ ﬁne café  naïve\tx\ny",
    "😀 party e\u0301",
    "a\u00a0b \u3000 c",
    "Ǆ ½ ™",
    "<s> </s>",
    "مرحبا بالعالم، أريد حجز تذكرة",
    "日本語のテキストを要約する",
    "\u0000\u200b\ufeffzero width",
    "lone \ud800 surrogate",
    "word " * 400,
)


def installed() -> UsePackage:
    package = find_package()
    assert package is not None, "the default dependencies are installed where tests run"
    return package


@cache
def model() -> UseModel:
    return load_model(installed(), None)


def encoders() -> dict[str, Encode]:
    return load_encoders(installed(), None)


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(installed())
