"""The one table of operations, by subject. Faces, SDK, command, reference and API description are read off it."""

from __future__ import annotations

from waypost.registry.operations.agents import AGENTS
from waypost.registry.operations.domains import DOMAINS
from waypost.registry.operations.meeting import MEETING
from waypost.registry.operations.operation import Operation as Operation
from waypost.registry.operations.service import SERVICE
from waypost.registry.operations.trust import TRUST

OPERATIONS: dict[str, Operation] = {
    operation.name: operation for operation in (*AGENTS, *DOMAINS, *MEETING, *TRUST, *SERVICE)
}
