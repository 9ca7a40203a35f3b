"""Conversations, tasks, swarms, invitations."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB, MIB

# --- Conversations (adp.md §6) -------------------------------------------------------------------
AGP_FRAME_BYTES: Final = MIB  # P-2
AGP_CONTENT_BYTES: Final = 900 * KIB  # of one message: in a frame, quoted, with what stands around it
AGP_RESULT_BYTES: Final = 512 * KIB  # of JSON as a content: every quote in it takes two bytes there
AGP_NAME_CHARS: Final = 320  # an Agent URI: a domain has 253
AGP_ID_CHARS: Final = 128  # a UUID has 36; others write more
AGP_NONCE_CHARS: Final = (22, 256)  # P-2: 16 random bytes at least
AGP_PAST_SECONDS: Final = 300  # ADP-49
AGP_FUTURE_SECONDS: Final = 60  # ADP-49
AGP_MEMORY_SECONDS: Final = 420  # ADP-50: both of these, and a minute for clocks that are set
AGP_MEMORY: Final = 100_000  # ids that are remembered in memory; beyond it the oldest give way
AGP_HANDSHAKE_SECONDS: Final = 10.0  # P-2
AGP_HEARTBEAT_SECONDS: Final = 30.0  # W8
AGP_SILENCE_SECONDS: Final = 90.0  # W8: nothing heard for so long, and it is over
AGP_WINDOW: Final = 256  # messages of one conversation on their way, not yet acknowledged
AGP_QUEUE: Final = 256  # messages of one conversation that wait for a handler; then nothing more is read
AGP_AT_ONCE: Final = 24  # messages that are signed before other tasks have a turn
AGP_SHARED_FROM: Final = 4  # signatures that are shared with a second thread: to wake it takes as long as one of them
AGP_SHARED_BYTES: Final = 64 * KIB  # to be signed, from which it is shared: hashing them takes longer than the curve
AGP_ACK_IDS: Final = 128  # messages that one acknowledgement covers
AGP_ACK_ENOUGH: Final = 8  # messages that are acknowledged without waiting for more
AGP_ACK_SECONDS: Final = 0.004  # how long an acknowledgement in a stream waits for others
AGP_STALL_SECONDS: Final = 10.0  # W6: a peer that takes nothing for so long loses its session, not its messages
AGP_CLOSE_SECONDS: Final = 5.0  # for a last word
AGP_PARTING_SECONDS: Final = 0.25  # for the line before to end, when a peer comes back; then it counts as cut
AGP_OUTBOX: Final = 100_000  # messages of one agent that wait for their peers
AGP_OUTBOX_OF_PEER: Final = 1000  # for one of them: who never takes its answers leaves room for others
AGP_ANSWERS_SECONDS: Final = 3600  # how long the service keeps an answer that nobody takes
AGP_OUTBOX_SECONDS: Final = 7 * 86_400  # then a message that nobody took is given up
AGP_SEEN_SECONDS: Final = 8 * 86_400  # ids that were acknowledged are known for longer than anybody sends them again
AGP_PARTS: Final = 10_000  # of one streamed answer
AGP_ANSWER_SECONDS: Final = 120.0  # how long a question waits for its answer, unless told otherwise
AGP_SOCKETS: Final = 5_000  # sessions of one process of the service
AGP_STRANGERS: Final = 8  # of one address whose handshake is not over
AGP_SESSIONS_OF_AGENT: Final = 8  # of one agent at the service, verified
AGP_FRAMES_PER_SECOND: Final = 400.0  # below the messages: a message of 1 MiB may come in many fragments
AGP_FRAMES_BURST: Final = 2000.0
AGP_HANDSHAKES_PER_MINUTE: Final = 120  # of one address: each may make us ask the DNS
AGP_MESSAGES_PER_SECOND: Final = 20.0  # W5: of one session with the service; each leaves a row for a day
AGP_MESSAGES_BURST: Final = 200
AGP_LINE_PER_SECOND: Final = 300.0  # of an agent that holds a line: what it says to all who called it
AGP_LINE_BURST: Final = 1500
AGP_SERVICE_SEEN_SECONDS: Final = 86_400  # ids that the service knows: nobody waits longer for its answer
AGP_MAILBOX: Final = 1000  # messages kept for one agent that is away
AGP_MAILBOX_BYTES: Final = 8 * MIB
AGP_MAILBOX_OF_SENDER: Final = 200  # of them by one sender: nobody fills it for all others
AGP_MAILBOX_SECONDS: Final = 240  # ADP-49: after 300 seconds the receiver has to refuse it
AGP_RELAYED: Final = 1000  # agents that hold a line to one service
AGP_GUESTS: Final = 64  # conversations of one agent through its relay, at a time

# --- Tasks, swarms, invitations ------------------------------------------------------------------
TASK_BYTES: Final = 256 * KIB  # what one task brings along; more belongs at an address that the task names
TASK_RESULT_BYTES: Final = MIB  # fifty candidates with all their evidence have half of it
TASK_NAME_CHARS: Final = 128
TASKS_PER_CALLER: Final = 100  # that are not done yet: one caller must not fill the queue of all
TASKS_PER_AGENT: Final = 1000  # that wait for one agent; beyond it 429 with Retry-After
TASKS_AT_ONCE: Final = 8  # that the service itself works on, beside the requests that it answers
TASK_RUN_SECONDS: Final = 30.0  # of one attempt of the service's own tasks
TASK_ATTEMPTS: Final = 3  # a task that was begun so often and never ended is one that kills its worker
TASK_TTL_SECONDS: Final = 86_400  # a task that nobody did by then is told as failed
TASK_TTL_MIN_SECONDS: Final = 10
TASK_TTL_MAX_SECONDS: Final = 7 * 86_400
TASK_KEEP_SECONDS: Final = 86_400  # how long the result of a task can be asked for
TASKS_DONE_PER_CALLER: Final = 1000  # whose results can still be asked for; the oldest go first
TASKS_PAGE: Final = 16  # tasks in memory at once, of a queue that is looked through: each may have TASK_BYTES
TASK_LEASE_SECONDS: Final = 300  # a worker that took a task says so again before that, or another may take it
TASK_LEASE_MIN_SECONDS: Final = 5
TASK_LEASE_MAX_SECONDS: Final = 3600
TASKS_TAKEN: Final = 20  # by one worker in one call
TASK_WAIT_SECONDS: Final = 30  # that a worker waits for a task in one call: well below the time of an idle connection
TASK_POLL_SECONDS: Final = (2, 5, 15, 60, 300)  # how long after each other a task sent elsewhere is asked for
CALLBACK_DELAYS_SECONDS: Final = (2, 10, 60)  # P-5: three tries after the first, each half early or half late by chance
CALLBACKS_AT_ONCE: Final = 16
SIGNED_PAST_SECONDS: Final = 300  # ADP-49: what was signed before that is refused
SIGNED_AHEAD_SECONDS: Final = 60
SIGNED_KEEP_SECONDS: Final = 420  # ADP-50: how long a signed request is remembered: the window and a minute of doubt
SWARMS: Final = 10_000  # of one service
SWARMS_PER_CALLER: Final = 100
SWARM_MEMBERS: Final = 256
SWARM_TOLD_PER_HOST: Final = 16  # addresses on one server that one message is brought to: a swarm is no amplifier (S8)
SWARM_ROLE_CHARS: Final = 64
SWARM_MESSAGE_BYTES: Final = 64 * KIB
SWARM_MESSAGES: Final = 256  # of one swarm that can be read again
SWARM_MESSAGE_KEEP_SECONDS: Final = 86_400
SWARM_KEEP_SECONDS: Final = 30 * 86_400  # a swarm in which nothing happens for so long is forgotten
INVITATIONS_PER_AGENT: Final = 1000
INVITATION_USES: Final = 1000  # one invitation for everybody in a company; more is a public agent
INVITATION_TTL_SECONDS: Final = 7 * 86_400
INVITATION_TTL_MIN_SECONDS: Final = 60
INVITATION_TTL_MAX_SECONDS: Final = 365 * 86_400
INVITATION_CODE_BYTES: Final = 20  # P-6 asks for 16
