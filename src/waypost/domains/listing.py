"""What an organisation lists, taken apart: domains to be resolved, documents that are of the agents found there, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from waypost import limits
from waypost.domains.naming import is_domain, is_same_organisation
from waypost.domains.organisation import Index
from waypost.registry.importing import FoundAgent
from waypost.registry.joining import tied, told_of
from waypost.registry.kinship import Home, find_tie, points_home
from waypost.registry.publication import Publication


class Listing:
    """Of one organisation, whose word its index is, wherever that was fetched from."""

    def __init__(self, organisation: str, index: Index, listed: Sequence[Publication | FoundAgent]) -> None:
        self._organisation = organisation
        self.named = dict.fromkeys(entry.domain for entry in index.told.entries if entry.domain)
        self.left = list(listed)

    def domains(self, own: str) -> list[str]:
        """Those that it names, and those whose documents it points at, but for its own, which is looked up anyway."""
        hosts = (points_home(each.decoded.record) for each in self.left if isinstance(each, Publication))
        pointed = [
            host for host in hosts if host and is_domain(host) and is_same_organisation(host, self._organisation)
        ]
        found = dict.fromkeys((*self.named, *pointed))
        found.pop(own, None)
        return list(found)[: limits.ORGANISATION_AGENTS]

    def take_tied(self, home: Home) -> list[Publication]:
        """The documents that are of the agent of that home, one of each dialect. They are no longer left."""
        taken: dict[str, Publication] = {}
        left: list[Publication | FoundAgent] = []
        for each in self.left:
            tie = None if isinstance(each, FoundAgent) else find_tie(home, told_of(each), self._organisation)
            if isinstance(each, FoundAgent) or tie is None or each.dialect in taken:
                left.append(each)
            else:
                taken[each.dialect] = tied(each, home.agent, tie)
        self.left = left
        return list(taken.values())
