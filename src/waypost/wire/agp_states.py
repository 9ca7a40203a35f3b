"""The life of a session as a table: (state, event) → state. What is not in it does not happen.

Who connects is the caller and speaks first; the other is the answerer. The caller knows its peer from its hello with the right
echo, the answerer from the acknowledgement of its own nonce. Older hellos carry no proof that somebody is there now: those
sessions are open, but capped (P-2).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    CALLING = "calling"  # our hello is out, theirs is awaited
    LISTENING = "listening"  # their hello is awaited
    JUDGING_ANSWER = "judging answer"  # theirs is here; its key is looked for
    JUDGING_CALL = "judging call"
    ANSWERED = "answered"  # our hello is out; the acknowledgement of our nonce is awaited
    OPEN = "open"  # verified in both directions
    CAPPED = "capped"  # open, without a proof that the peer is there now
    ENDED = "ended"


class Event(StrEnum):
    HELLO = "hello"
    OLDER_HELLO = "older hello"
    ADMITTED = "admitted"
    ADMITTED_OLDER = "admitted, older"
    NONCE_ACK = "nonce acknowledged"
    MESSAGE = "message"
    FAULT = "fault"
    DISCONNECT = "disconnect"


_LIVE = (
    State.CALLING,
    State.LISTENING,
    State.JUDGING_ANSWER,
    State.JUDGING_CALL,
    State.ANSWERED,
    State.OPEN,
    State.CAPPED,
)

TABLE: Final[dict[tuple[State, Event], State]] = {
    (State.CALLING, Event.HELLO): State.JUDGING_ANSWER,
    (State.CALLING, Event.OLDER_HELLO): State.JUDGING_ANSWER,
    (State.JUDGING_ANSWER, Event.ADMITTED): State.OPEN,
    (State.JUDGING_ANSWER, Event.ADMITTED_OLDER): State.CAPPED,
    (State.LISTENING, Event.HELLO): State.JUDGING_CALL,
    (State.LISTENING, Event.OLDER_HELLO): State.JUDGING_CALL,
    (State.JUDGING_CALL, Event.ADMITTED): State.ANSWERED,
    (State.JUDGING_CALL, Event.ADMITTED_OLDER): State.CAPPED,
    (State.ANSWERED, Event.NONCE_ACK): State.OPEN,
    (State.OPEN, Event.MESSAGE): State.OPEN,
    (State.CAPPED, Event.MESSAGE): State.CAPPED,
    **{(state, Event.FAULT): State.ENDED for state in _LIVE},
    **{(state, Event.DISCONNECT): State.ENDED for state in _LIVE},
}


def find_next(state: State, event: Event) -> State | None:
    return TABLE.get((state, event))


def diagram() -> str:
    """The table as Mermaid draws it. Faults and disconnects end every state; they are one arrow each."""
    names = {state: state.value.replace(" ", "_") for state in State}
    lines = ["stateDiagram-v2", "    [*] --> calling: we connect", "    [*] --> listening: they connect"]
    for (state, event), target in TABLE.items():
        if target is not State.ENDED:
            lines.append(f"    {names[state]} --> {names[target]}: {event.value}")
    lines += [f"    {names[state]} --> ended" for state in (State.OPEN, State.CAPPED)]
    return "\n".join([*lines, "    ended --> [*]"])
