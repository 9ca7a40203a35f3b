"""The tasks that the service does itself: `discover` and `echo` (SURFACE: the service is an agent too)."""

from __future__ import annotations

from waypost.errors import InvalidParameter, InvalidRequest
from waypost.meeting.sending import parse_input
from waypost.meeting.task import Task
from waypost.model.json import kind_of
from waypost.model.principal import ANONYMOUS, SCOPE_READ, Principal
from waypost.server.profile import ProfileFace
from waypost.trust.policy import require_scope

NAMES = ("discover", "echo")


class OwnTasks:
    def __init__(self, profile: ProfileFace) -> None:
        self._profile = profile

    def check(self, name: str, principal: Principal) -> None:
        """Refuse at once what could only fail."""
        if name not in NAMES:
            raise InvalidParameter(
                f"The service has no task {name[:64]!r}.", path="$.task", hint=f"It does {' and '.join(NAMES)}."
            )
        if name == "discover" and not principal.is_anonymous:
            require_scope(principal, SCOPE_READ)

    async def execute(self, task: Task) -> bytes:
        if task.name == "echo":
            return task.input
        request = parse_input(task)
        if not isinstance(request, dict):
            raise InvalidRequest(
                f"The input is a Discovery Request, not {kind_of(request)}.",
                path="$.input",
                hint='Send {"query": "…"}.',
            )
        return await self._profile.found(request, _rights(task), task.id)


def _rights(task: Task) -> Principal:
    """Those that the task was sent with. An agent that signed sees what everybody sees."""
    if task.subject is None:
        return ANONYMOUS
    return Principal(subject=task.subject, scopes=frozenset(task.scopes), via="task")
