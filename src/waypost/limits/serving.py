"""What a service, its pages and its clients keep and wait for."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB, MIB

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
OUTGOING_BYTES: Final = 64 * KIB  # of an answer that are gathered before they are sent, in one call to the system
DEPARTURE_SECONDS: Final = 0.0005  # for which an answer waits at most for others that leave with it
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
CANDIDATE_CACHE: Final = 32_768  # some 700 bytes each, held in halves: one may be young
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
WRITTEN_CACHE: Final = (
    65_536  # words and tags as written, with what was made of each; they follow Zipf, and some 10 MiB hold them
)
WRITTEN_CHARS: Final = 64  # a longer one is nobody else's word: it is not kept
HEADER_CACHE: Final = 256  # protected headers of at most 512 characters: one for each key that signs often
BOUND_KEY_CACHE: Final = 1024  # rows of the trust store with their keys read, some 2 KiB each

# --- Embedders -----------------------------------------------------------------------------------
EMBEDDER_PIECES: Final = 256  # of one text; what a sentence model says of more is no better
EMBEDDER_BATCH_PIECES: Final = 384  # worked on at once: some milliseconds, and what is computed stays in the cache
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
SPREAD_WINDOW: Final = 10  # results that are looked at together when near duplicates are spread

# --- Doctor --------------------------------------------------------------------------------------
DOCTOR_CERTIFICATE_DAYS: Final = 14  # before a certificate ends: time to get another one
DOCTOR_DISK_WARNING_BYTES: Final = 1024 * MIB
DOCTOR_DISK_DANGER_BYTES: Final = 100 * MIB  # a commit and its log need some
DOCTOR_EARLIEST: Final = 1_735_689_600.0  # 2025-01-01: a clock that says less was never set
DOCTOR_SKEW_SECONDS: Final = 30  # the leeway that tokens have
