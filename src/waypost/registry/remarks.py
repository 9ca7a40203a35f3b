"""What a publisher is told of a document that was accepted: texts that try to do more than describe, a name that misleads.

Told, not judged: the document is registered all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from waypost import limits
from waypost.errors import ConfusableName
from waypost.model.registration import Registration
from waypost.registry.catalogue import Catalogue
from waypost.registry.drift import HeldChange
from waypost.registry.lookalikes import Lookalikes
from waypost.registry.publication import Publication
from waypost.search.lint import marks
from waypost.search.policy import CONFUSABLE_NAME


def remarks(registration: Registration, lookalikes: Lookalikes) -> Iterator[str]:
    record = registration.record
    yield from map(str, marks(record))
    alike = lookalikes.find(record.name, registration.owner)
    if alike is not None:
        yield (
            f"{CONFUSABLE_NAME}: $.name could be taken for {alike!r}, a verified agent of another owner; "
            "it stands lower until it is verified itself"
        )


def check_name(publication: Publication, catalogue: Catalogue) -> None:
    """Where the operator asks for it, a new name must not look like another owner's verified one. An admin may do it."""
    name, by = publication.decoded.record.name, publication.principal
    agent_id = catalogue.resolve(publication.decoded.record.id)
    before = catalogue.find(agent_id) if agent_id is not None else None
    alike = None if by.is_admin else catalogue.lookalikes.find(name, by.subject or "anonymous")
    if alike is not None and (before is None or before.name != name):
        raise ConfusableName(
            f"The name could be taken for {alike!r}, a verified agent of another owner.",
            path="$.name",
            hint="Choose another name, or ask the operator (confusable_names is refuse).",
        )


def held_remark(waiting: HeldChange) -> str:
    parts = ", ".join(each.part for each in waiting.differences)
    return (
        f"held: the agent is verified and this would change its {parts}, so readers go on seeing what was; "
        f"sign it with the agent's key, or confirm it within {limits.HELD_SECONDS // 86_400} days"
    )
