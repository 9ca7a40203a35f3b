"""What searching needs: embedders and the index. Loaded when the first agents can be read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from waypost.registry.ports import Ranker
from waypost.settings import Settings

if TYPE_CHECKING:
    from waypost.embedders.choice import Choice

_MODELS = "models"
INDEX = "index"


class Models:
    """The embedders of the settings. What searching needs is a third of all that a start imports, so it is loaded when the
    first agents can be read; but for a setting that may be wrong, which is told at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.embedder not in ("auto", "none"):
            self.choice.load()

    @cached_property
    def choice(self) -> Choice:
        from waypost.embedders.choice import choose

        folder = None if self._settings.store == "memory" else self._settings.data / _MODELS
        return choose(self._settings.embedder, folder)

    def load(self) -> None:
        if self._settings.embedder != "none":
            self.choice.load()

    def are_there(self) -> bool:
        """Whether there is a sentence model: named, or found where `auto` looks for one."""
        return are_there(self._settings)


def are_there(settings: Settings) -> bool:
    if settings.embedder == "auto":
        from waypost.embedders.package import find_package

        return find_package() is not None
    return settings.embedder != "none"


def make_ranker(settings: Settings, models: Models) -> Ranker:
    """The index of this service. A follower reads what the writer saved: it follows the folder, and never saves."""
    from waypost.search.ranker import HybridRanker

    folder = None if settings.store == "memory" else settings.data / INDEX
    if settings.embedder == "none":
        return HybridRanker(folder)
    return HybridRanker(folder, models.choice.spaces, warnings=models.choice.warnings)
