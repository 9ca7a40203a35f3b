"""The skills and domains of OASF: which class a tag names, and which class an id stands for.

`taxonomy.json` holds the names and ids of the classes and says where they are from. A tag names a class if it is the
class's whole path, its last segment, or one of the everyday words below. Other tags name no class: a wrong class
would be worse than none, because directories filter by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from waypost.protocols.codec import load_resource

_SEPARATORS = re.compile(r"[^a-z0-9/]+")
_SKILL_SYNONYMS: Mapping[str, str] = {
    "asr": "speech_recognition",
    "chat": "dialogue_generation",
    "chatbot": "dialogue_generation",
    "ci_cd": "ci_cd_configuration",
    "classification": "text_classification",
    "code": "coding_skills",
    "code_generation": "text_to_code",
    "coding": "coding_skills",
    "compliance": "compliance_assessment",
    "computer_vision": "image_processing",
    "deployment": "deployment_orchestration",
    "etl": "data_transformation_pipeline",
    "fact_checking": "fact_verification",
    "information_retrieval": "retrieval_of_information",
    "math": "mathematical_reasoning",
    "mathematics": "mathematical_reasoning",
    "moderation": "content_moderation",
    "monitoring": "monitoring_alerting",
    "ner": "named_entity_recognition",
    "ocr": "image_to_text",
    "orchestration": "agent_coordination",
    "paraphrase": "paraphrasing",
    "planning": "strategic_planning",
    "programming": "coding_skills",
    "provisioning": "infrastructure_provisioning",
    "qa": "question_answering",
    "refactoring": "code_optimization",
    "retrieval": "retrieval_of_information",
    "search": "information_retrieval_synthesis_search",
    "semantic_search": "information_retrieval_synthesis_search",
    "sentiment": "sentiment_analysis",
    "speech_to_text": "speech_recognition",
    "style_transfer": "text_style_transfer",
    "summaries": "summarization",
    "summarisation": "summarization",
    "summarize": "summarization",
    "summary": "summarization",
    "text_generation": "natural_language_generation",
    "transcription": "speech_recognition",
    "translate": "translation",
    "translator": "translation",
    "tts": "text_to_speech",
    "vulnerability_scanning": "vulnerability_analysis",
}
_DOMAIN_SYNONYMS: Mapping[str, str] = {
    "accounting": "finance",
    "amazon_web_services": "aws",
    "api": "apis_integration",
    "biology": "molecular_biology",
    "claims": "claims_processing",
    "climate": "climate_science",
    "cloud": "cloud_computing",
    "contracts": "contract_law",
    "crypto": "cryptocurrency",
    "ecommerce": "online_retail",
    "elearning": "e_learning",
    "fitness": "fitness_and_wellness",
    "food": "food_and_beverage",
    "fraud": "fraud_prevention",
    "games": "gaming",
    "hiring": "recruitment",
    "hotels": "hotel_management",
    "inventory": "inventory_management",
    "investment": "investment_services",
    "invoices": "finance",
    "iot": "internet_of_things",
    "marketing": "digital_marketing",
    "medicine": "medical_technology",
    "payments": "finance",
    "pharma": "pharmaceutical_research",
    "privacy": "data_privacy",
    "recruiting": "recruitment",
    "shipping": "logistics",
    "testing": "quality_assurance",
    "tourism": "tourism_management",
    "travel": "travel_services",
}


class TaxonomyClass(NamedTuple):
    name: str
    id: int


class TagClasses(NamedTuple):
    """What the tags of a record name in the taxonomy; `unmapped` are the tags that name nothing."""

    skills: tuple[TaxonomyClass, ...]
    domains: tuple[TaxonomyClass, ...]
    unmapped: tuple[str, ...]


def classify_tags(tags: Iterable[str]) -> TagClasses:
    """Return the classes of the tags, without repeats. A word that is both a skill and a domain is taken as a skill."""
    skills, domains = _by_word("skills"), _by_word("domains")
    found: tuple[dict[str, TaxonomyClass], dict[str, TaxonomyClass]] = ({}, {})
    unmapped = []
    for tag in tags:
        word = _SEPARATORS.sub("_", tag.lower()).strip("_")
        if word in skills:
            found[0].setdefault(skills[word].name, skills[word])
        elif word in domains:
            found[1].setdefault(domains[word].name, domains[word])
        else:
            unmapped.append(tag)
    return TagClasses(tuple(found[0].values()), tuple(found[1].values()), tuple(unmapped))


def find_class_name(kind: str, class_id: int) -> str | None:
    """Return the name of a class (`kind` is skills or domains) that a record names by its id alone."""
    return _by_id(kind).get(class_id)


@cache
def _by_word(kind: str) -> dict[str, TaxonomyClass]:
    synonyms = _SKILL_SYNONYMS if kind == "skills" else _DOMAIN_SYNONYMS
    classes = {name: TaxonomyClass(name, number) for name, number in _classes(kind).items()}
    words = {name.rpartition("/")[2]: found for name, found in classes.items()}
    return classes | words | {synonym: words[word] for synonym, word in synonyms.items()}


@cache
def _by_id(kind: str) -> dict[int, str]:
    return {number: name for name, number in _classes(kind).items()}


def _classes(kind: str) -> dict[str, int]:
    classes: dict[str, int] = load_resource(__package__, "taxonomy.json")[kind]
    return classes
