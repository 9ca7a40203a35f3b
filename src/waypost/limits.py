"""Units of what is bounded."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024

MIB: Final = 1024 * KIB


# ---- What documents, records and their leases may be.

# --- Documents -----------------------------------------------------------------------------------
DOCUMENT_BYTES: Final = 256 * KIB  # the largest A2A card seen in the wild is 90 KiB

BATCH_BYTES: Final = 64 * MIB  # streamed line by line, so this bounds time, not memory

REQUEST_BYTES: Final = 64 * KIB  # a discovery request or a command; documents have their own bound

RPC_BYTES: Final = MIB  # a JSON-RPC batch may carry many cards

RPC_BATCH_CALLS: Final = 100  # one budget for all calls of a batch

JSON_DEPTH: Final = 32  # deeper than any dialect; far below the interpreter's recursion limit

JSON_OBJECT_KEYS: Final = 256  # hash flooding and evidence size

JSON_ARRAY_ITEMS: Final = 1000

JSON_INTEGER_MAX: Final = 2**53 - 1  # beyond it two readers see two numbers (RFC 8785, RFC 8259 §6)

# --- Record members ------------------------------------------------------------------------------
ID_CHARS: Final = 1024

NAME_CHARS: Final = 128

DESCRIPTION_CHARS: Final = 4096

TAGS: Final = 32  # tag stuffing stops paying here

TAG_CHARS: Final = 64

EXAMPLES: Final = 32

EXAMPLE_CHARS: Final = 512

BINDINGS: Final = 16

ENDPOINT_CHARS: Final = 2048

VERSION_CHARS: Final = 255  # as the MCP registry

METADATA_BYTES: Final = 4 * KIB  # announce.md §1, MCP registry's publisher metadata

ALIASES: Final = 32

CATALOG_ENTRIES: Final = 50_000  # entries of one AI catalog that are taken in (ard.md P-5)

# --- RTFS cards (rtfs.md P-5, P-18) --------------------------------------------------------------
RTFS_TEXT_BYTES: Final = MIB

RTFS_DEPTH: Final = 64

RTFS_FORMS: Final = 100_000

RTFS_FORMS_SHORT: Final = 4096  # in any text, however dense: 50 kB of single letters must not keep a reader busy

RTFS_FORM_CHARS: Final = (
    10  # what a form has on average in a longer text; profiles have 12, and RTFS_FORMS in 1 MiB is one in 10
)

RTFS_INTEGER_DIGITS: Final = 40

RTFS_CARD_BYTES: Final = 64 * KIB

RTFS_CAPABILITIES: Final = 256

RTFS_TAGS: Final = 64

RTFS_ENDPOINTS: Final = 32

RTFS_ID_CHARS: Final = 256

RTFS_QUERY_KEYS: Final = 32

RTFS_QUERY_DEPTH: Final = 8

RTFS_LIMIT_DEFAULT: Final = 20

RTFS_LIMIT_MAX: Final = 100

RTFS_INLINE_SCHEMA_BYTES: Final = 8 * KIB  # P-12: a longer schema becomes a reference into the profile

RTFS_INLINE_SCHEMA_DEPTH: Final = 16  # so that a card as a whole stays within JSON_DEPTH

RTFS_TIMEOUT_MS_DEFAULT: Final = 10_000  # P-36: how long a (discover-agents …) form waits

RTFS_TIMEOUT_MS_MAX: Final = 600_000

RTFS_CACHE_SECONDS: Final = 60  # RTFS-61: how long :use-cache takes a value for fresh

RTFS_CACHED_FORMS: Final = 64

RTFS_ANSWER_BYTES: Final = 16 * MIB  # RTFS_LIMIT_MAX cards of RTFS_CARD_BYTES, and room

RTFS_SCAN_CARDS: Final = 200_000  # cards that one request may look at, over all calls of its batch

VERSION_RANGE_CHARS: Final = 256

VERSION_RANGES: Final = 16

VERSION_TERMS: Final = 32  # versions that a range names: two for each of VERSION_RANGES

# --- Leases --------------------------------------------------------------------------------------
TTL_MIN_SECONDS: Final = 10

TTL_MAX_SECONDS: Final = 86_400

TTL_DEFAULT_SECONDS: Final[dict[str, int | None]] = {"rtfs": 3600, "announce": 120}  # others: no lease

FUTURE_SKEW_SECONDS: Final = 300  # an updated_at further ahead would freeze the record (TUF fast-forward)

REMEMBER_WITHDRAWN_SECONDS: Final = 86_400  # a withdrawn id keeps its high-water mark this long

HELD_SECONDS: Final = 7 * 86_400  # a change that waits for its owner: a week off is not an answer

ID_HOLD_MAX_SECONDS: Final = 3600  # an expired id stays its owner's for min(ttl, this)


# ---- What may be asked at once, followed and looked up later.

# --- Queries and pages ---------------------------------------------------------------------------
QUERY_CHARS: Final = 2000  # a task described in a paragraph

QUERY_TERMS: Final = 64  # distinct terms that reach the index

FILTER_VALUES: Final = 64

FACET_VALUES: Final = 20  # of each facet, the most frequent ones; a longer list is no overview

SUGGESTIONS: Final = 3  # for each tag that nobody carries

DISCOVER_LIMIT_DEFAULT: Final = 10

DISCOVER_LIMIT_MAX: Final = 100

PAGE_DEFAULT: Final = 50

PAGE_MAX: Final = 200

ARD_TEXT_CHARS: Final = 4096  # ard.md P-13; the ranker reads QUERY_CHARS of them

ARD_SEARCH_PAGE: Final = 10

ARD_LIST_PAGE: Final = 20

ARD_PAGE_MAX: Final = 100

ARD_MATCHED: Final = 2000  # entries that a text matches: what is beyond nobody pages through

ARD_FILTER_KEYS: Final = 32

ARD_FILTER_VALUES: Final = 64

ARD_PATH_CHARS: Final = 128

ARD_PATH_DEPTH: Final = 8

ARD_FACETS: Final = 16

ARD_BUCKETS: Final = 20

ARD_BUCKETS_MAX: Final = 1000

ARD_LIST_FILTER_CHARS: Final = 2048

ARD_ORDER_FIELDS: Final = 8

ARD_REFERRALS: Final = 20

ARD_SCAN_ENTRIES: Final = 20_000  # whole entries that one request may look at; most paths need none

CURSOR_SECONDS: Final = 86_400  # a cursor of a list holds for one to two of these

AF_QUERY_CHARS: Final = 256

AF_QUERY_TERMS: Final = 16

AF_TAGS: Final = 32

AF_PAGE_NUMBER_MAX: Final = 1_000_000

AF_UNPAGED_MAX: Final = 1000

AF_SEGMENT_BYTES: Final = 1024  # an id in a path, after decoding (AF-15)

AF_GZIP_BYTES: Final = 32 * KIB  # a page of fifty summaries is sent faster plain

AF_ANONYMOUS_PER_MINUTE: Final = 60  # per address, where the limiter is on (AF-54)

AF_PRINCIPAL_PER_MINUTE: Final = 600

QUERY_STRING_BYTES: Final = 8 * KIB

PATH_SEGMENT_BYTES: Final = 12 * KIB  # a percent-encoded id of ID_CHARS, each of up to four bytes

# --- Watch ---------------------------------------------------------------------------------------
WATCH_KEEP_SECONDS: Final = 86_400

WATCH_KEEP_CHANGES: Final = 100_000

WATCH_BOOKMARK_SECONDS: Final = 30

WATCH_BATCH: Final = 256  # events read from the log at once for one watcher

WATCH_STALL_SECONDS: Final = 20  # a socket that takes nothing for so long is closed

WATCHERS: Final = 2000

# --- Audit trail and history ---------------------------------------------------------------------
AUDIT_KEEP: Final = 1_000_000  # entries whose content is kept: some 320 MiB; their hashes stay for good

AUDIT_KEEP_MIN: Final = 1000  # less would be no trail

AUDIT_PAGE_DEFAULT: Final = 100

AUDIT_PAGE_MAX: Final = 1000

AUDIT_SCAN: Final = 50_000  # entries that one page looks at when it is filtered: some 50 ms

CHECKPOINT_BYTES: Final = 8 * KIB  # three lines and some signatures

HISTORY_VERSIONS: Final = 32  # earlier contents of one agent

HISTORY_BYTES: Final = MIB  # of them in all: frequent updates of a large record must not fill the disk

DIFFERENCES: Final = 500  # places that one comparison names


# ---- What a service, its pages and its clients keep and wait for.

# --- Server --------------------------------------------------------------------------------------
HEADER_BYTES: Final = 16 * KIB  # request line and headers; a query string has its own bound within it

TLS_HANDSHAKE_SECONDS: Final = 5.0  # from the first byte of a connection; two round trips need less

HEADER_READ_SECONDS: Final = 5  # from the first byte of a request to the end of its headers

BODY_READ_SECONDS: Final = 10

LINGER_BYTES: Final = 8 * 1024 * 1024  # of a refused body: read for nothing, so that whoever sends it sees the answer

LINGER_SECONDS: Final = 2.0  # without a byte of it; BODY_READ_SECONDS in all

IDLE_SECONDS: Final = 60

CONNECTIONS: Final = 4000

BACKLOG: Final = 512

WORKERS: Final = 64  # processes of one service; more than the cores of a machine help nobody

FORWARD_IDLE: Final = 64  # connections to the writing process that are kept for the next write

FORWARD_IDLE_SECONDS: Final = 30  # well before the writing process closes them: a write must not meet a closing door

FORWARD_ANSWER_SECONDS: Final = 60  # how long the writing process may take for the head of its answer

FORWARD_PART_BYTES: Final = 64 * KIB  # of an answer that wait for a slow client

REQUEST_ID_CHARS: Final = 128

IDEMPOTENCY_KEY_CHARS: Final = 255

IDEMPOTENCY_KEEP_SECONDS: Final = 86_400

GROUP_COMMIT_MAX: Final = 512  # commands that may share one fsync

GROUP_SLICE: Final = 16  # commands decided in one turn of the event loop: about 2 ms

WORK_SLICE_SECONDS: Final = 0.003  # long work on the event loop gives way to other requests this often

THREAD_SWITCH_SECONDS: Final = 0.0001  # a busy loop must let the committing thread in: with the usual 5 ms it starves

WRITE_QUEUE: Final = 10_000  # commands waiting for the writer; beyond it 503 with Retry-After

# The collector's default would walk the whole catalogue several times a second under load; records have no cycles.
COLLECTOR_THRESHOLDS: Final = (20_000, 20, 50)

# --- Caches (entries) ----------------------------------------------------------------------------
RECORD_CACHE: Final = 4096

NAME_SKELETON_CACHE: Final = 32_768  # some 200 bytes each

RENDERING_CACHE_BYTES: Final = 32 * MIB

ZONE_SET_BYTES: Final = 1232  # AID-12: what every network carries in one datagram

ZONE_AGENTS: Final = 64  # D12: agents that an organisation's index names in the DNS

ZONE_VALUES: Final = 16  # certificates or addresses that one zone is asked to name

LIVE_CERTIFICATE_SECONDS: Final = 10.0  # for the certificate of a host, when a zone shall name it

CAPABILITY_VERSIONS: Final = 16  # of one domain: what zones may still name while the DNS remembers them

HOSTED_DOCUMENTS: Final = 256  # signed documents of hosted agents that are kept; a signature costs 50 µs

SUMMARY_CACHE_BYTES: Final = (
    72 * MIB
)  # the summaries of some 110,000 agents: whoever pages through them reads each once a page

AF_TEXT_CACHE_BYTES: Final = 64 * MIB  # folded texts of 100k agents, kept once somebody searches by substring

AF_PAGES: Final = 64  # pages of summaries that are asked for again and again

AF_SCANS: Final = 32  # answers of recent substring searches, so that walking their pages scans once

AF_SCAN_IDS: Final = 10_000  # an answer longer than this is not kept

RATE_CALLERS: Final = 10_000  # callers whose rate is remembered

TOKEN_CACHE: Final = 4096

TERM_CACHE: Final = (
    65_536  # words and tags as written, with what was made of each; they follow Zipf, and some 10 MiB hold them
)

TERM_CACHE_CHARS: Final = 64  # a longer one is nobody else's word: it is not kept

HEADER_CACHE: Final = 256  # protected headers of at most 512 characters: one for each key that signs often

BOUND_KEY_CACHE: Final = 1024  # rows of the trust store with their keys read, some 2 KiB each

# --- Embedders -----------------------------------------------------------------------------------
EMBEDDER_TOKENS: Final = 256  # of one text; what a sentence model says of more is no better

EMBEDDER_BATCH_TOKENS: Final = 384  # worked on at once: some milliseconds, and what is computed stays in the cache

EMBEDDER_ROWS: Final = 6000  # pieces whose share of the network is kept, 13 KiB each; a language is spoken with fewer

EMBEDDER_CUTS: Final = 32  # texts whose pieces are kept: a question with its clauses, from one space to the next

EMBEDDER_QUESTIONS: Final = 4096  # texts whose vectors are kept, 1 KiB each

EMBEDDER_QUESTION_TEXTS: Final = 16  # a question and its clauses; more at once are agents, who come once

# --- Pages ---------------------------------------------------------------------------------------
PAGE_SESSION_SECONDS: Final = 12 * 3600  # a working day, then a person signs in again

PAGE_TOKEN_CHARS: Final = 2500  # sealed, it fits into the 4096 bytes that browsers keep of a cookie

SIGN_IN_CODE_SECONDS: Final = 600  # between reading a link in a terminal and opening it

SIGN_IN_CODES: Final = 1000  # redeemed codes that are remembered; each was made by this machine

PAGE_AGENTS: Final = 25  # in a list, and in what a search shows

PAGE_CHANGES: Final = 12  # beside the catalogue; all of them are on the page of changes

PAGE_CHANGES_KEPT: Final = 60  # for each audience, one for each agent

PAGE_CHANGES_TOLD: Final = 500  # that wait to be taken in until somebody looks: a millisecond of work

PAGE_AUDIENCES: Final = 1000  # whose latest changes are kept: private ones each have their own

PAGE_FORM_BYTES: Final = 1 * MIB  # a document of the largest size, percent-encoded

PAGE_CARDS: Final = 4096  # agents of which the written card is kept: some 2 KiB each

PAGE_DOCUMENT_CHARS: Final = 60_000  # of a document that is shown on a page; the whole is a link away

PAGE_COUNTS: Final = 256  # counts of filters that are kept while nothing changes

PAGE_FACETS: Final = 12  # values of a filter that are shown

PAGE_EXAMPLES: Final = 12

# --- Client --------------------------------------------------------------------------------------
CLIENT_TIMEOUT_SECONDS: Final = 30.0

CLIENT_ATTEMPTS: Final = 4  # with the back-off below a dead service is reported in under a second

CLIENT_BACKOFF_SECONDS: Final = 0.1  # doubled at each attempt, then drawn from 0 to it (full jitter)

CLIENT_BACKOFF_MAX_SECONDS: Final = 10.0

CLIENT_RETRY_AFTER_MAX_SECONDS: Final = 60  # asked to wait longer, the caller is told instead

CLIENT_WATCH_ATTEMPTS: Final = 60  # a watcher rides out a restart or a short outage, not a removal

CLIENT_BATCH_LINES: Final = 500  # enough to share fsyncs, few enough for steady progress

CLIENT_BATCH_BYTES: Final = 4 * MIB

CLIENT_LINE_BYTES: Final = 16 * MIB  # far beyond any document in any dialect; a line without end is cut off

DIVERSITY_WINDOW: Final = 10  # results that are looked at together when near duplicates are spread

# --- Doctor --------------------------------------------------------------------------------------
DOCTOR_CERTIFICATE_DAYS: Final = 14  # before a certificate ends: time to get another one

DOCTOR_DISK_WARNING_BYTES: Final = 1024 * MIB

DOCTOR_DISK_DANGER_BYTES: Final = 100 * MIB  # a commit and its log need some

DOCTOR_EARLIEST: Final = 1_735_689_600.0  # 2025-01-01: a clock that says less was never set

DOCTOR_SKEW_SECONDS: Final = 30  # the leeway that tokens have


# ---- Keys, owners, issuers and proofs.

# --- Keys and signatures -------------------------------------------------------------------------
KEY_BYTES: Final = 8 * KIB  # announce.md §1; RSA of 8192 bits has 1.5 KiB, a certificate is rarely past 3 KiB

RSA_BITS_MIN: Final = 2048

RSA_BITS_MAX: Final = 8192  # beyond it verifying is a way to keep a server busy

RSA_EXPONENT_MIN: Final = 65_537  # smaller ones forgive mistakes in padding

JWS_BYTES: Final = 8 * KIB  # a token, or the header of a detached signature

JWKS_KEYS: Final = 64

JWKS_BYTES: Final = 64 * KIB

SIGNATURES: Final = 8  # of one document that are looked at

# --- Owners --------------------------------------------------------------------------------------
TOKEN_TTL_MAX_SECONDS: Final = 86_400

TOKEN_LEEWAY_SECONDS: Final = 30

AGENTS_PER_OWNER: Final = 1000  # more than any team runs; an import of everybody's agents is an admin's

INVITEES: Final = 100  # subjects that may see one private agent: each is a token of its audience

SUBJECT_CHARS: Final = 256

READS_PER_MINUTE: Final = 3000  # 50 a second, sustained: a program, not a person

WRITES_PER_MINUTE: Final = 1200  # an owner of AGENTS_PER_OWNER agents may renew each once a minute

WRITE_LINES: Final = 100  # lines of a batch that count as one write: an import of all agents of an owner is ten

AUTH_FAILURES_PER_MINUTE: Final = 600  # of one address; beyond it nothing is decrypted or verified for it

# --- Outside issuers and client certificates -------------------------------------------------------
JWKS_REFRESH_SECONDS: Final = 60  # between two looks for a key that is not known: a token must not make us ask at will

JWKS_FRESH_SECONDS: Final = 600  # after which keys are fetched again in the background

JWKS_KEEP_SECONDS: Final = 86_400  # how long the last keys hold while their issuer cannot be reached

TOKEN_RECHECK_SECONDS: Final = 30  # a token that holds is asked about again: its key may be gone

SECRET_BYTES: Final = 32  # of an HS256 secret, at least: as long as what it makes (RFC 7518 §3.2)

FILE_CHECK_SECONDS: Final = 5.0  # between two looks whether a file of keys or revocations changed

CERTIFICATE_CACHE: Final = 1024

# --- Domain proofs -------------------------------------------------------------------------------
PROOF_TTL_SECONDS: Final = 7 * 86_400  # a zone is changed by people, who have weekends

PROOF_CLAIMS: Final = 32  # subjects that claim one domain

PROOF_DOMAINS: Final = 100  # claims of one subject

PROOF_FAILURES: Final = 3  # checks in a row that end a grant: an outage is no loss of a domain

PROOF_RECHECK_SECONDS: Final = 86_400

PROOF_RETRY_PART: Final = 24  # after a failure a re-check comes in this part of the usual time

PROOF_RECHECKS_AT_ONCE: Final = 8

PROOF_TXT_RECORDS: Final = 64  # at the name of a proof that are looked at

PROOF_LEVELS: Final = 8  # of a domain, from the top, that are asked for a proof

PROOF_UNANSWERED: Final = 7  # periods without any answer from our own resolver until that counts as a failure

PROOF_NOTES: Final = 64  # domains that one registration is held against


# ---- Announcements and what carries them.

# --- Announcements (announce.md) -----------------------------------------------------------------
ANNOUNCE_BYTES: Final = 16 * KIB  # P-25: a public key of 8 KiB, metadata of 4 KiB, and room

ANNOUNCE_FUTURE_SECONDS: Final = 60  # P-17: how far ahead a clock may be

ANNOUNCE_PAST_SECONDS: Final = 300  # P-17: after so long a captured announcement is worth nothing

ANNOUNCE_DIGESTS: Final = 16  # of objects without a sequence: the last contents that are known (C12)

ANNOUNCE_DIGEST_SECONDS: Final = 86_400  # P-18

ROTATION_GRACE_SECONDS: Final = 86_400  # ANN-22

ROTATION_PAUSE_SECONDS: Final = 3600  # P-13: one rotation an hour; a thief must not run away with an id

PIN_UNUSED_SECONDS: Final = (
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

SOCKET_SUBSCRIBED_AGENTS: Final = (
    10_000  # agents of one subscription that are remembered, so that it hears when they are gone
)

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

SOURCE_PACKETS_PER_SECOND: Final = 250  # messages of one machine; a thousand agents on it say 200 a second

SOURCE_PACKETS_BURST: Final = 1000  # and all answer one question

NOISY_SOURCE_PACKETS_PER_SECOND: Final = (
    10  # of one that sends thousands: whoever is honest beside it is lost among them anyway
)

PACKETS_PER_SECOND: Final = 500  # of all sources, since one is easily made up: judging a message takes some 0.3 ms

UNKNOWN_SOURCE_PACKETS_PER_SECOND: Final = 100  # of all that were never believed, while their addresses are made up

KNOWN_SOURCE_AFTER_SECONDS: Final = 5  # a source that was believed so long before a flood of strangers is no part of it

KNOWN_SOURCES: Final = 64  # that are heard in such a flood: each is a comparison for every packet

PACKETS_BURST: Final = 2000

PACKET_QUEUE: Final = 2000  # packets of the LAN that were let in and wait to be read: a burst of them, some 3 MiB

LAN_CONCURRENT_WRITES: Final = (
    1  # announcements that a registry works on at a time: one hold of the event loop, not two
)

LAN_WRITE_PAUSE_SECONDS: Final = (
    0.003  # after each of them, for requests to come in between: some 150 a second are left
)

LAN_SETTLE_SECONDS: Final = 0.2  # an agent that was never heard of waits first: a flood is found out by then

LAN_CONCURRENT_RENEWALS: Final = (
    8  # of the same words again, which only keep a lease alive: 500 a second, written together
)

LAN_RENEWAL_PAUSE_SECONDS: Final = 0.01

LAN_REVERIFY_SECONDS: Final = 30  # after which the same words are judged again: a key may have been revoked

LAN_QUEUE: Final = 512  # and that wait for it; beyond it they are dropped, and said again by whoever is there

PACKET_READ_SLICE_SECONDS: Final = 0.00025  # for which packets are taken from a socket at a time: ten or twenty of them

PACKET_READ_PAUSE_SECONDS: Final = (0.001, 0.004)  # before the next ones, and at most, when none of them was let in

PACKET_WORK_SLICE_SECONDS: Final = 0.0005  # for which they are judged at a time: two announcements, or twenty questions

PACKET_WORK_PAUSE_SECONDS: Final = 0.001  # before the next turn: requests find the event loop free

LAN_READ_PAUSE_SECONDS: Final = 0.003  # the same of a registry, which can register fewer than are read in such turns

LAN_QUEUE_PER_SOURCE: Final = 64  # half a second's work: a flood that is not yet known as one stays short

ANNOUNCED_TTL_SECONDS: Final = (10, 3600)  # P-7

MDNS_TTL_SECONDS: Final = 10  # ANN-30

MDNS_CROWDED_INSTANCES: Final = 50  # P-21: with more instances than this on a link, records live MDNS_CROWD_TTL_SECONDS

MDNS_CROWDED_TTL_SECONDS: Final = 120

MDNS_NAMES: Final = 5  # instance names that are tried before a conflict is reported

MDNS_POINTERS_AT_ONCE: Final = 8  # announcements that are fetched from where a record points to

UDP_PORT: Final = 49353  # P-24

LAN_TTL_SECONDS: Final = 120  # of a message that names none

LOCAL_AGENTS: Final = 1000  # announced by one process on one transport: as many as an owner may have

QUERIES_AT_ONCE: Final = 256  # questions of one process that wait for answers

ANSWERS_OF_QUERY: Final = 1000  # that one question collects

RESIGN_SECONDS: Final = 60  # P-16: an announcer signs anew at least so often

ROTATION_ANNOUNCED_SECONDS: Final = (
    7 * 86_400
)  # P-13: how long an announcer shows that the key before vouches for its key

ANNOUNCE_JITTER: Final = 0.1  # P-21: of the time between two announcements, so that agents do not fall into step

ECHO_SECONDS: Final = 1.0  # for an own announcement to come back; three that did not, and a period, are less than a ttl

ANNOUNCE_RETRY_SECONDS: Final = 5  # after a failure; doubled up to the usual time

POSITIVE_CACHE_SECONDS: Final = 300  # P-31: a positive answer, and never past its ttl

NEGATIVE_CACHE_SECONDS: Final = 5  # P-31

QUERY_CACHE: Final = 1024  # questions whose answers are kept

BUS_OPEN_SECONDS: Final = 5  # for a connection to the bus, and for its word that it took a message

BUS_RECONNECT_SECONDS: Final = 1  # before a bus that turned us out is tried again

BUS_PING_SECONDS: Final = 20  # a bus that is silent so long, twice, is taken for gone

BUS_PENDING: Final = 8192  # messages of one subscription that wait to be read; beyond it they are dropped

BUS_PENDING_BYTES: Final = 8 * MIB

DUPLICATE_WINDOW_SECONDS: Final = (
    2.0  # B5: the same bytes again; announcers repeat themselves every 5 seconds at the fastest
)

DUPLICATE_WINDOW_MESSAGES: Final = 4096  # of those that are remembered for it

REDELIVERY_DELAYS_SECONDS: Final = (0.1, 0.5)  # B3: three tries

DEAD_LETTERS: Final = 64  # that were set aside, the last of them: a MiB at most

DEAD_LETTER_SECONDS: Final = 30  # until the same bytes are worth a try again


# ---- What is asked of others: requests, names, domains.

# --- Outgoing requests ---------------------------------------------------------------------------
FETCH_CONNECT_SECONDS: Final = 2.0  # the name, the connection and the handshake, each

FETCH_TOTAL_SECONDS: Final = 5.0  # whatever drips

FETCH_SMALL_BYTES: Final = 4 * KIB  # a health answer or a proof; the MCP registry takes as much

FETCH_CARD_BYTES: Final = DOCUMENT_BYTES

FETCH_PAGE_BYTES: Final = 4 * MIB  # a page of a peer or a catalogue

FETCH_HEADER_BYTES: Final = 16 * KIB

FETCH_REDIRECTS: Final = 3  # of one site, to https only

FETCH_URL_CHARS: Final = 2048

FETCH_AT_ONCE: Final = 200  # with the deadline above: how much of this process strangers can keep busy

FETCH_PER_ADDRESS: Final = 4  # a registry must not be an amplifier against one victim

FETCH_WAITING: Final = 1000  # beyond it a fetch is refused at once

FETCH_HEALTH_PAUSE_SECONDS: Final = 10  # one check of an address and port in so long, however many agents name it

HEALTH_AT_ONCE: Final = 200  # checks; 5,000 dead endpoints of two seconds each are through in less than a minute

HEALTH_AT_EASE: Final = 16  # and with more than so many under way, one begins HEALTH_GAP_SECONDS after the other

HEALTH_GAP_SECONDS: Final = 0.009

HEALTH_SECONDS: Final = 60  # between two checks of an endpoint, a fifth more or less by chance

HEALTH_JITTER: Final = 0.2

HEALTH_FAILURES: Final = 3  # in a row: the agent is listed no longer

HEALTH_SUCCESSES: Final = 2  # in a row: it is listed again

HEALTH_BACKOFF: Final = 8  # what stays dead is asked so many times more seldom, in the end

HEALTH_EVICT_SECONDS: Final = 86_400  # unhealthy and silent for so long: the record goes

HEALTH_HOLD_LEAST: Final = 50  # endpoints that fail at once, and more than half of all: it may be our own network

HEALTH_HOLD_SECONDS: Final = 3600  # for so long nobody is delisted then

FETCH_OPT_OUT_SECONDS: Final = 86_400  # whoever answers 410 is not checked for so long

FETCH_PACE_TARGETS: Final = 20_000  # addresses whose last check is remembered

FETCH_DISCREET_SECONDS: Final = FETCH_TOTAL_SECONDS  # when a failure to connect is told to those who may not know why

FETCH_ADDRESSES: Final = 16  # of one name; more are no server but a scan

FETCH_FOUND: Final = 1000  # documents of one catalogue that one fetch takes in

# --- The DNS -------------------------------------------------------------------------------------
DNS_UDP_BYTES: Final = 1232  # what crosses every path without fragments (the DNS flag day of 2020)

DNS_MESSAGE_BYTES: Final = 65_535  # what the length before a message over TCP can say

DNS_RECORDS: Final = 2000  # of one message; more fit into 64 KiB, but into no zone that is meant well

DNS_SECONDS: Final = 5.0  # for one look-up with all that it takes to prove it (D13)

DNS_TRY_SECONDS: Final = 1.5  # for one answer over UDP, before the question is sent again

DNS_TRIES: Final = 2  # of one question to one server

DNS_AT_ONCE: Final = 100  # questions on the way: a resolver's socket holds some 160 until they are read

DNS_LOOKUPS_AT_ONCE: Final = 50  # the others wait, before their time begins

DNS_IDLE_SECONDS: Final = 10.0  # how long a connection to a resolver is kept for the next question

DNS_CACHE_ANSWERS: Final = 8000  # answers, and as many cuts between zones, that are remembered

DNS_CACHE_MESSAGES: Final = 2000  # of 3 to 10 KiB each, for as long as they are being judged and a little longer

DNS_TTL_LEAST: Final = 5  # D14: a record that changes faster is asked for no more often

DNS_TTL_MOST: Final = 86_400  # D14: nobody holds on to what was withdrawn for longer than a day

DNS_QUERIES: Final = 64  # for one look-up: a chain of eight zones takes sixteen

DNS_ALIASES: Final = 8  # D1: links of CNAME and DNAME

DNS_LABELS: Final = 24  # of a name whose chain of trust is walked; each may cost two questions

DNS_AHEAD: Final = 6  # zones above a name whose keys are asked for before it is known that they are needed

DNS_UPDATE_SECONDS: Final = 30.0  # for an update: the server signs and writes before it answers

ZONE_JOURNAL: Final = 32  # updates of one agent's records that can be undone, one after the other

ZONE_SETS: Final = 50_000  # record sets of a zone of `dns serve`, which is signed whole at each update

DNSSEC_SIGNATURES: Final = 8  # D13: verified for one set of records, whatever it brings along (CVE-2023-50387)

DNSSEC_SIGNATURES_SEEN: Final = 16  # looked at for one set; a zone in a change of algorithm has four

DNSSEC_KEYS: Final = 64  # of one zone; in a change of keys there are a handful

DNSSEC_SIGNATURES_ALL: Final = 64  # for one look-up; a chain of eight zones takes some thirty

DNSSEC_COLLIDING_KEYS: Final = 4  # D13: keys of one zone with the same tag and algorithm

DNSSEC_NSEC3_ITERATIONS: Final = 150  # D13: more is treated as not signed (RFC 9276 §3.2)

DNSSEC_NSEC3_HASHES: Final = 256  # names hashed for one look-up (CVE-2023-50868)

DNSSEC_DENIALS: Final = 16  # NSEC or NSEC3 records of one answer that are looked at; four are enough for any proof

DNSSEC_ANCHORS_BYTES: Final = 256 * KIB  # a file of trust anchors

# --- From a domain to an agent (adp.md, dns-aid.md AID-26) -----------------------------------------
SVCB_PARAMS: Final = 64  # of one record; unbound's limit (D6)

SVCB_RECORDS: Final = 64  # of one name that are read; as many agents as a list of aliases may name (D12)

SVCB_TARGETS: Final = 4  # servers that are tried one after another

ALIAS_CHAIN: Final = 8  # aliases one after another, CNAMEs not counted (D1)

AGENT_TXT_RECORDS: Final = 16  # at one name that are read

DESCRIPTOR_BYTES: Final = 256_000

DESCRIPTOR_SECONDS: Final = 12.0  # for a document or an index that the DNS leads to, whatever drips (AID-26)

INDEX_BYTES: Final = MIB

INDEX_AGENTS: Final = 500

INDEX_STEPS: Final = 64  # of reading one that are told one by one; the others are counted

INDEX_AT_ONCE: Final = 8  # agents of one organisation that are resolved side by side

ORGANISATION_AGENTS: Final = 64  # of one organisation that one call registers

LINKAGE_CANDIDATES: Final = (
    512  # records of one owner and one organisation that are compared with an agent: a whole index
)

LINKAGE_SLICE: Final = 5_000  # agents that are passed over at a time on the way there: half a millisecond

DOCUMENT_TTL_SECONDS: Final = 3600  # where a document does not say how long it holds (ADP-31)

DOCUMENT_TTL_MAX_SECONDS: Final = 86_400

TLSA_RECORDS: Final = 32  # of one name that are compared

AID_PROOF_SECONDS: Final = 300  # that a proof of an AID key may hold

AID_PROOF_SKEW_SECONDS: Final = 60  # between its clock and ours

RESOLVE_COST: Final = 50  # in reads: one a second, where the default of reads holds

RESOLUTIONS_KEPT: Final = 1000  # of the service, in memory, for as long as they hold

RESOLUTIONS_AT_ONCE: Final = 64  # beyond it callers wait: each holds sockets

RECHECK_SECONDS: Final = 86_400  # between two looks at the domain of an agent that came from there

RECHECKS_AT_ONCE: Final = 8


# ---- Conversations, tasks, swarms, invitations.

# --- Conversations (adp.md §6) -------------------------------------------------------------------
AGP_FRAME_BYTES: Final = MIB  # P-2

AGP_CONTENT_BYTES: Final = 900 * KIB  # of one message: in a frame, quoted, with what stands around it

AGP_RESULT_BYTES: Final = 512 * KIB  # of JSON as a content: every quote in it takes two bytes there

AGP_NAME_CHARS: Final = 320  # an Agent URI: a domain has 253

AGP_ID_CHARS: Final = 128  # a UUID has 36; others write more

AGP_NONCE_CHARS: Final = (22, 256)  # P-2: 16 random bytes at least

AGP_PAST_SECONDS: Final = 300  # ADP-49

AGP_FUTURE_SECONDS: Final = 60  # ADP-49

AGP_REPLAY_SECONDS: Final = 420  # ADP-50: both of these, and a minute for clocks that are set

AGP_REPLAY_CACHE: Final = 100_000  # ids that are remembered in memory; beyond it the oldest give way

AGP_HANDSHAKE_SECONDS: Final = 10.0  # P-2

AGP_HEARTBEAT_SECONDS: Final = 30.0  # W8

AGP_SILENCE_SECONDS: Final = 90.0  # W8: nothing heard for so long, and it is over

AGP_WINDOW: Final = 256  # messages of one conversation on their way, not yet acknowledged

AGP_QUEUE: Final = 256  # messages of one conversation that wait for a handler; then nothing more is read

AGP_AT_ONCE: Final = 24  # messages that are signed before other tasks have a turn

AGP_SHARED_FROM: Final = 4  # signatures that are shared with a second thread: to wake it takes as long as one of them

AGP_SHARED_BYTES: Final = 64 * KIB  # to be signed, from which it is shared: hashing them takes longer than the curve

AGP_ACK_IDS: Final = 128  # messages that one acknowledgement covers

AGP_ACK_BATCH: Final = 8  # messages that are acknowledged without waiting for more

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

AGP_PENDING_HANDSHAKES: Final = 8  # of one address whose handshake is not over

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

AGP_RELAYED_SESSIONS: Final = 64  # conversations of one agent through its relay, at a time

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


# ---- Every bound of the product, next to its reason. Nothing else defines one; by subject, in the modules here.
#
# A bound without a reason is a guess; a buffer without a bound is a fault. Tests take each one at the limit and one past it.
