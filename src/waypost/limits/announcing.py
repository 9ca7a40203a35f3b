"""Announcements and what carries them."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB, MIB

# --- Announcements (announce.md) -----------------------------------------------------------------
ANNOUNCE_BYTES: Final = 16 * KIB  # P-25: a public key of 8 KiB, metadata of 4 KiB, and room
ANNOUNCE_FUTURE_SECONDS: Final = 60  # P-17: how far ahead a clock may be
ANNOUNCE_PAST_SECONDS: Final = 300  # P-17: after so long a captured announcement is worth nothing
ANNOUNCE_DIGESTS: Final = 16  # of objects without a sequence: the last contents that are known (C12)
ANNOUNCE_DIGEST_SECONDS: Final = 86_400  # P-18
ROTATION_GRACE_SECONDS: Final = 86_400  # ANN-22
ROTATION_PAUSE_SECONDS: Final = 3600  # P-13: one rotation an hour; a thief must not run away with an id
PIN_SILENT_SECONDS: Final = (
    90 * 86_400
)  # then the row of an id that nobody named or revoked is forgotten: ids may be made up
PINNED_KEYS: Final = 32  # of one agent, retired ones included: the oldest retired ones are forgotten first
ALLOW_RULES: Final = 100_000  # kept in memory
RULE_CHARS: Final = 256
REASON_CHARS: Final = 256  # of a revocation
VERSION_WARN_SECONDS: Final = 3600  # ANN-51: one warning for each peer
VERSION_PEERS: Final = 10_000  # peers whose version is remembered

# --- Transports (announce.md §6) -----------------------------------------------------------------
SOCKET_MESSAGE_BYTES: Final = 64 * KIB  # P-26: one WebSocket message
SOCKETS: Final = 10_000  # sessions of one process
SOCKETS_OF_PRINCIPAL: Final = 20  # one subject, or one address without a token
SOCKET_FRAMES_PER_SECOND: Final = 50  # W5: of one session, pings and fragments included
SOCKET_FRAMES_BURST: Final = 100  # enough for a message of 64 KiB in fragments of 1 KiB
SOCKET_SLICE_BYTES: Final = 4 * KIB  # bytes that are read before frames are counted: a flood of empty ones stays small
SOCKET_QUEUE_MESSAGES: Final = 256  # W6: what waits for a slow reader
SOCKET_QUEUE_BYTES: Final = MIB
SOCKET_STALL_SECONDS: Final = 10  # a queue that stays full for so long ends the session
SOCKET_PING_SECONDS: Final = 30  # ANN-37: nothing heard for so long, and the other side is asked
SOCKET_SILENCE_SECONDS: Final = 60  # P-28: nothing heard for so long, and it is over
SOCKET_CLOSE_SECONDS: Final = 5  # for the other side to take the last frame
SOCKET_RECHECK_SECONDS: Final = 20  # W9: a credential that ended is noticed well within a minute
SOCKET_SUBSCRIPTIONS: Final = 32  # W10: of one session
SOCKET_TOLD: Final = 10_000  # agents of one subscription that are remembered, so that it hears when they are gone
SOCKET_REFUSALS: Final = 16  # messages refused in a row before the session ends with the code of the last
SOCKET_BACKOFF_SECONDS: Final = (1.0, 60.0)  # P-28: a client that comes back, full jitter
SOCKET_OPEN_SECONDS: Final = 10  # for a connection and its handshake
DATAGRAM_BYTES: Final = 512  # ANN-31: what every path carries in one piece
FRAGMENTS: Final = 16  # P-23: 8,000 bytes, enough for a key of 4096 bits and 4 KiB of metadata
FRAGMENT_SECONDS: Final = 2.0  # fragments leave together; what is missing then was lost
FRAGMENT_PARTIALS: Final = 32  # messages of one source that are put together at a time
FRAGMENT_BYTES: Final = MIB  # of all sources; the oldest give way
COOKIE_SECONDS: Final = 60  # a source that proved itself is believed for one to two of these
TXT_BYTES: Final = 1300  # P-23: the record and its header stay within one Ethernet frame
TXT_READ_BYTES: Final = 9000  # the largest mDNS packet (RFC 6762 §17)
TXT_CHUNKS: Final = 16  # far more than TXT_BYTES hold
TXT_STRING_BYTES: Final = 255  # one length byte
VERSION_ANSWER_SECONDS: Final = 60  # P-32: own major sent back to one source
DIRECTORY_AGENTS: Final = 10_000  # agents that one listener keeps in mind (THREATS: mDNS cache records)
DIRECTORY_AGENTS_OF_SOURCE: Final = (
    2_000  # of one machine on the LAN: twice what one process announces; others keep room
)
TRUST_FILE_PINS: Final = 20_000  # keys that a listener binds on first use and keeps, some 10 MiB; then the oldest go
DIRECTORY_SWEEP_SECONDS: Final = 0.25  # ANN-41 asks for expiry within a second
ANSWERS_PER_SECOND: Final = 10  # P-24: to one source, and as burst
ANSWER_DELAY_SECONDS: Final = (0.020, 0.120)  # P-24: many hosts must not answer in one instant
ANSWER_SOURCES: Final = 4096  # sources whose pace is remembered
ANSWERS_AT_ONCE: Final = 256  # answers that wait for their moment; beyond it questions are dropped
HEARD_PER_SECOND: Final = 250  # messages of one machine; a thousand agents on it say 200 a second
HEARD_BURST: Final = 1000  # and all answer one question
HEARD_LOUD_PER_SECOND: Final = 10  # of one that sends thousands: whoever is honest beside it is lost among them anyway
HEARD_ALL_PER_SECOND: Final = 500  # of all sources, since one is easily made up: judging a message takes some 0.3 ms
HEARD_STRANGERS_PER_SECOND: Final = 100  # of all that were never believed, while their addresses are made up
BELIEVED_AFTER_SECONDS: Final = 5  # a source that was believed so long before a flood of strangers is no part of it
BELIEVED_SOURCES: Final = 64  # that are heard in such a flood: each is a comparison for every packet
HEARD_ALL_BURST: Final = 2000
HEARD_WAITING: Final = 2000  # packets of the LAN that were let in and wait to be read: a burst of them, some 3 MiB
LAN_AT_ONCE: Final = 1  # announcements that a registry works on at a time: one hold of the event loop, not two
LAN_REST_SECONDS: Final = 0.003  # after each of them, for requests to come in between: some 150 a second are left
LAN_SETTLE_SECONDS: Final = 0.2  # an agent that was never heard of waits first: a flood is found out by then
LAN_REPEATS_AT_ONCE: Final = 8  # of the same words again, which only keep a lease alive: 500 a second, written together
LAN_REPEATS_REST_SECONDS: Final = 0.01
LAN_REPEAT_SECONDS: Final = 30  # after which the same words are judged again: a key may have been revoked
LAN_WAITING: Final = 512  # and that wait for it; beyond it they are dropped, and said again by whoever is there
HEARD_READ_SECONDS: Final = 0.00025  # for which packets are taken from a socket at a time: ten or twenty of them
HEARD_READ_REST_SECONDS: Final = (0.001, 0.004)  # before the next ones, and at most, when none of them was let in
HEARD_TURN_SECONDS: Final = 0.0005  # for which they are judged at a time: two announcements, or twenty questions
HEARD_REST_SECONDS: Final = 0.001  # before the next turn: requests find the event loop free
LAN_READ_REST_SECONDS: Final = 0.003  # the same of a registry, which can register fewer than are read in such turns
LAN_WAITING_OF_SOURCE: Final = 64  # half a second's work: a flood that is not yet known as one stays short
ANNOUNCED_TTL_SECONDS: Final = (10, 3600)  # P-7
MDNS_TTL_SECONDS: Final = 10  # ANN-30
MDNS_CROWD: Final = 50  # P-21: with more instances than this on a link, records live MDNS_CROWD_TTL_SECONDS
MDNS_CROWD_TTL_SECONDS: Final = 120
MDNS_NAMES: Final = 5  # instance names that are tried before a conflict is reported
MDNS_POINTERS_AT_ONCE: Final = 8  # announcements that are fetched from where a record points to
UDP_PORT: Final = 49353  # P-24
LAN_TTL_SECONDS: Final = 120  # of a message that names none
OWN_AGENTS: Final = 1000  # announced by one process on one transport: as many as an owner may have
QUERIES_AT_ONCE: Final = 256  # questions of one process that wait for answers
ANSWERS_OF_QUERY: Final = 1000  # that one question collects
RESIGN_SECONDS: Final = 60  # P-16: an announcer signs anew at least so often
ROTATION_TOLD_SECONDS: Final = 7 * 86_400  # P-13: how long an announcer shows that the key before vouches for its key
ANNOUNCE_JITTER: Final = 0.1  # P-21: of the time between two announcements, so that agents do not fall into step
ECHO_SECONDS: Final = 1.0  # for an own announcement to come back; three that did not, and a period, are less than a ttl
ANNOUNCE_RETRY_SECONDS: Final = 5  # after a failure; doubled up to the usual time
FOUND_SECONDS: Final = 300  # P-31: a positive answer, and never past its ttl
NOT_FOUND_SECONDS: Final = 5  # P-31
FOUND_QUERIES: Final = 1024  # questions whose answers are kept
BUS_OPEN_SECONDS: Final = 5  # for a connection to the bus, and for its word that it took a message
BUS_AGAIN_SECONDS: Final = 1  # before a bus that turned us out is tried again
BUS_PING_SECONDS: Final = 20  # a bus that is silent so long, twice, is taken for gone
BUS_PENDING: Final = 8192  # messages of one subscription that wait to be read; beyond it they are dropped
BUS_PENDING_BYTES: Final = 8 * MIB
REPEATED_SECONDS: Final = 2.0  # B5: the same bytes again; announcers repeat themselves every 5 seconds at the fastest
REPEATED_MESSAGES: Final = 4096  # of those that are remembered for it
ATTEMPT_PAUSES_SECONDS: Final = (0.1, 0.5)  # B3: three tries
PARKED_MESSAGES: Final = 64  # that were set aside, the last of them: a MiB at most
PARKED_SECONDS: Final = 30  # until the same bytes are worth a try again
