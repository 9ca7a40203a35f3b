"""Every bound of the product, next to its reason.

No other module defines one. Tests exercise each bound that a caller can reach at the limit and one past it.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- Documents -----------------------------------------------------------------------------------
DOCUMENT_BYTES: Final = 256 * KIB  # the largest A2A card found in public has 90 KiB
BATCH_BYTES: Final = 64 * MIB  # streamed line by line: bounds time, not memory
BATCH_ANSWER_BYTES: Final = 24 * MIB  # documents are answered more briefly; lines of two bytes are not
REQUEST_BYTES: Final = 64 * KIB  # a discovery request or a command
RPC_BYTES: Final = MIB  # a JSON-RPC batch may carry many cards
RPC_BATCH_CALLS: Final = 100  # the calls of a batch share one budget
JSON_DEPTH: Final = 32  # deeper than any dialect, far below the interpreter's recursion limit
JSON_OBJECT_KEYS: Final = 256  # bounds hash flooding and the size of evidence
JSON_ARRAY_ITEMS: Final = 1000
JSON_INTEGER_MAX: Final = 2**53 - 1  # larger integers are read differently by different parsers (RFC 8785, RFC 8259 §6)

# --- Record members ------------------------------------------------------------------------------
ID_CHARS: Final = 1024
NAME_CHARS: Final = 512  # twice what AF-20 shows
DESCRIPTION_CHARS: Final = 64 * KIB  # AF-20 shows 16 KiB; search reads INDEXED_DESCRIPTION_CHARS
TAGS: Final = 128  # RTFS cards have 64, and a capability for each; unrelated ones count as stuffing
TAG_CHARS: Final = 64
EXAMPLES: Final = 32
EXAMPLE_CHARS: Final = 2048  # search reads INDEXED_EXAMPLE_CHARS
BINDINGS: Final = 32  # rtfs.md P-18
ENDPOINT_CHARS: Final = 2048
VERSION_CHARS: Final = 255  # the bound of the MCP registry
METADATA_BYTES: Final = 4 * KIB  # announce.md §1, publisher metadata of the MCP registry
ALIASES: Final = 32

# --- RTFS cards (rtfs.md P-5, P-18) --------------------------------------------------------------
RTFS_TEXT_BYTES: Final = MIB
RTFS_DEPTH: Final = 64
RTFS_FORMS: Final = 100_000
RTFS_FORMS_SHORT: Final = 4096  # allowed in any text, however dense: 50 kB of single letters must not be slow to parse
RTFS_FORM_CHARS: Final = 10  # required per form, on average, in a longer text; real profiles have 12
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
RTFS_INLINE_SCHEMA_DEPTH: Final = 16  # keeps the whole card within JSON_DEPTH
RTFS_TIMEOUT_MS_DEFAULT: Final = 10_000  # P-36: how long a (discover-agents …) form waits
RTFS_TIMEOUT_MS_MAX: Final = 600_000
RTFS_CACHE_SECONDS: Final = 60  # RTFS-61: how long :use-cache treats a value as fresh
RTFS_CACHED_FORMS: Final = 64
RTFS_ANSWER_BYTES: Final = 16 * MIB  # RTFS_LIMIT_MAX cards of RTFS_CARD_BYTES, and some room
RTFS_SCAN_CARDS: Final = 200_000  # cards that one request may scan, over all calls of its batch
VERSION_RANGE_CHARS: Final = 256
VERSION_RANGES: Final = 16
VERSION_TERMS: Final = 32  # versions named in a range: two for each of VERSION_RANGES

# --- Leases --------------------------------------------------------------------------------------
TTL_MIN_SECONDS: Final = 10
TTL_MAX_SECONDS: Final = 86_400
TTL_DEFAULT_SECONDS: Final[dict[str, int | None]] = {"rtfs": 3600, "announce": 120}  # other dialects: no lease
FUTURE_SKEW_SECONDS: Final = 300  # a later updated_at would freeze the record (fast-forward attack, as in TUF)
REMEMBER_WITHDRAWN_SECONDS: Final = 86_400  # how long a withdrawn id keeps its high-water mark
PENDING_CHANGE_SECONDS: Final = 7 * 86_400  # lets an owner confirm a change after a week of absence
ID_HOLD_MAX_SECONDS: Final = 3600  # an expired id stays reserved for its owner for min(ttl, this)

# --- Queries and pages ---------------------------------------------------------------------------
QUERY_CHARS: Final = 2000  # a task described in a paragraph
INDEXED_DESCRIPTION_CHARS: Final = 4096  # what an agent does stands at the beginning; more makes it no easier to find
INDEXED_EXAMPLE_CHARS: Final = 512
QUERY_TERMS: Final = 64  # distinct terms looked up in the index
FILTER_VALUES: Final = 64
FACET_VALUES: Final = 20  # the most frequent values of each facet; a longer list is no overview
VALIDATION_PROBLEMS: Final = 50  # of one document that are looked for; each one decodes it again
NEAR_IDS: Final = 5  # ids that the error for an unknown or ambiguous name lists
SUGGESTIONS: Final = 3  # for each tag that no agent carries, and each word that none has
SPELLED_WORDS: Final = 16  # of a query: those whose spelling is checked
MISSPELLED_WORDS: Final = 4  # of a query: unknown ones that are compared with others, about 0.5 ms each
DISCOVER_LIMIT_DEFAULT: Final = 10
DISCOVER_LIMIT_MAX: Final = 100
PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200
ARD_TEXT_CHARS: Final = 4096  # ard.md P-13; the ranker uses the first QUERY_CHARS
ARD_SEARCH_PAGE: Final = 10
ARD_LIST_PAGE: Final = 20
ARD_PAGE_MAX: Final = 100
ARD_MATCHES: Final = 2000  # results of a text search: nobody pages further
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
ARD_FACTS_CACHE: Final = 10_000  # agents whose identifiers are kept between searches, about 1 KiB each
ARD_NESTED_CATALOGS: Final = 4  # levels of catalogs inside an entry; AIC recommends this depth
ARD_SCAN_ENTRIES: Final = 20_000  # full entries that one request may read; most filter paths need none
CURSOR_SECONDS: Final = 86_400  # rotation of the cursor key: a list cursor is valid for one to two periods
AF_QUERY_CHARS: Final = 256
AF_QUERY_TERMS: Final = 16
AF_TAGS: Final = 32
AF_PAGE_NUMBER_MAX: Final = 1_000_000
AF_UNPAGED_MAX: Final = 1000
AF_SEGMENT_BYTES: Final = 1024  # an id in a path, after decoding (AF-15)
GZIP_BYTES: Final = 16 * KIB  # smaller responses arrive with the first window of TCP, and are faster uncompressed
AF_ANONYMOUS_PER_MINUTE: Final = 60  # per address, if rate limits are on (AF-54)
AF_PRINCIPAL_PER_MINUTE: Final = 600
QUERY_STRING_BYTES: Final = 8 * KIB
PATH_SEGMENT_BYTES: Final = 12 * KIB  # a percent-encoded id of ID_CHARS with up to four bytes each

# --- Watch ---------------------------------------------------------------------------------------
WATCH_KEEP_SECONDS: Final = 86_400
WATCH_KEEP_CHANGES: Final = 100_000
WATCH_KEEP_BYTES: Final = 1024 * MIB  # of the change log, whatever its age: 10 KiB for each of WATCH_KEEP_CHANGES
WATCH_RECENT: Final = 10_000  # events in memory
WATCH_RECENT_BYTES: Final = 32 * MIB  # of their records
WATCH_BOOKMARK_SECONDS: Final = 30
WATCH_BATCH: Final = 256  # events read from the log at a time for one watcher
WATCH_STALL_SECONDS: Final = 20  # a connection that accepts no data for this long is closed
WATCHERS: Final = 2000
WATCHERS_PER_SUBJECT: Final = 500  # one subject cannot take them all
WATCHERS_PER_ADDRESS: Final = 1000  # nor can all subjects and strangers at one address
STANDING_QUERIES: Final = 64  # watches with a query: each costs a search after changes
STANDING_QUERIES_PER_SUBJECT: Final = 16
STANDING_QUERIES_PER_ADDRESS: Final = 32
STANDING_QUERY_PAUSE_SECONDS: Final = 0.2  # between two searches of one standing query: changes meanwhile share one
STANDING_QUERY_VECTOR_SECONDS: Final = 3.0  # the longest wait for the sentence vectors of changed agents
STANDING_QUERY_AGENTS: Final = 10_000  # reported agents whose withdrawal is reported too

# --- Audit trail and history ---------------------------------------------------------------------
AUDIT_KEEP: Final = 1_000_000  # entries kept with their content, about 320 MiB; hashes are kept forever
AUDIT_KEEP_MIN: Final = 1000  # fewer would not be a useful trail
AUDIT_PAGE_DEFAULT: Final = 100
AUDIT_PAGE_MAX: Final = 1000
AUDITED_REFUSALS_PER_HOUR: Final = 30  # of reserved ids, by subject: enough to see an attack, too few to fill the trail
AUDITED_SUBJECTS: Final = 1024  # whose refusals are counted
AUDIT_SCAN: Final = 50_000  # entries read for one filtered page: about 50 ms
CHECKPOINT_BYTES: Final = 8 * KIB  # three lines and some signatures
PUBLISH_SECONDS: Final = 3600  # one leaf of the published log, whatever happened: its growth must tell nothing
BACKUP_MANIFEST_BYTES: Final = 16 * MIB  # one line for each key and hosted document
HISTORY_VERSIONS: Final = 32  # earlier versions of one agent
HISTORY_BYTES: Final = MIB  # all earlier versions of one agent: frequent updates must not fill the disk
DIFFERENCES: Final = 500  # paths reported by one comparison

# --- Server --------------------------------------------------------------------------------------
HEADER_BYTES: Final = 16 * KIB  # request line and headers, including the query string
TLS_HANDSHAKE_SECONDS: Final = 5.0  # from the first byte of a connection; a handshake takes two round trips
HEADERS: Final = 200  # of a request, or trailers: thousands of short ones take twenty times their bytes in memory
HEADER_READ_SECONDS: Final = 5  # from the first byte of a request to the end of its headers
BODY_READ_SECONDS: Final = 10
INCOMPLETE_BODIES_BYTES: Final = 16 * MIB  # received of all bodies that are not complete yet; others get 503
UNCOUNTED_BODY_BYTES: Final = 16 * KIB  # of each of them: most documents are shorter, and are never refused for others
LINGER_BYTES: Final = 8 * MIB  # read and discarded of a rejected body, so that the client receives the response
DRAINED_BODIES: Final = (
    64  # rejected bodies that are read at the same time; the clients of others may miss the response
)
LINGER_SECONDS: Final = 2.0  # without new data of such a body; BODY_READ_SECONDS in total
IDLE_SECONDS: Final = 60
CONNECTIONS: Final = 4000
CONNECTIONS_PER_ADDRESS: Final = 1024  # one address cannot take them all
REFUSED_CONNECTIONS: Final = 64  # kept open for LINGER_SECONDS, so that their clients receive the reason
RETRY_SECONDS: Final = 5  # Retry-After of a refused connection
DESCRIPTORS: Final = 16_384  # CONNECTIONS, SOCKETS, and files
RESERVED_DESCRIPTORS: Final = 192  # for files, outgoing requests, and connections that are being refused
ANSWER_BYTES: Final = 4 * MIB  # one page of a list or of search results; a longer one ends earlier
ANSWER_OVERHEAD_BYTES: Final = 64 * KIB  # of an answer besides its items
ANSWER_READ_DOCUMENTS: Final = 16  # read at a time for a page: as many of the largest as an answer has
WRITE_STALL_SECONDS: Final = 20  # a connection whose client reads nothing for this long is aborted
WRITE_PROGRESS_BYTES: Final = 16 * KIB  # read within that time, a client counts as slow and is waited for
UNREAD_BYTES: Final = 16 * MIB  # buffered for all clients that do not read as fast as they ask
REFUSED_IDLE_SECONDS: Final = 15  # after a refusal under overload: longer than its Retry-After
UNREAD_SECONDS: Final = 2  # without being read from: then a connection makes room for other answers
PIPELINED_BYTES: Final = 16 * MIB  # of requests that wait on all connections for the answer before theirs
PIPELINED_REQUEST_BYTES: Final = 3 * KIB  # counted for each of them beside what was received: its scope and state
PIPELINED_HEADER_BYTES: Final = 160  # and for each of its headers
BUFFERED_BYTES: Final = 64 * KIB  # asyncio's high-water mark: a shorter answer never waits for its reader
NOT_READY_SECONDS: Final = 0.3  # after a stop signal, while the service still listens: load balancers look elsewhere
DRAIN_SECONDS: Final = 1.0  # after that, for connections that were in use to ask once more
SHUTDOWN_SECONDS: Final = 3  # after that, for requests in progress
BACKLOG: Final = 512
ACCEPT_RETRY_SECONDS: Final = 1.0  # after the system refused a descriptor for a connection
EXPORT_SLICE: Final = 16  # agents rendered for an export before other requests run: about 6 ms
QUEUE_TARGET_MS: Final = 10  # also the slice of a round: a write takes four rounds, so they must be short
QUEUE_TARGET_SECONDS: Final = QUEUE_TARGET_MS / 1000
QUEUE_READ_FACTOR: Final = 4.0  # how much longer than searches reads may wait before they are refused
QUEUE_WRITE_FACTOR: Final = 8.0  # and writes, which wait for other writes only: a renewal finds room in every round
QUEUE_ESSENTIAL_FACTOR: Final = 40.0  # and health checks: only a flood of them is refused
QUEUE_ROUND_FACTOR: Final = 3.0  # a longer round of the event loop leaves less of the next one to writes
QUEUE_OVERLOAD_FACTOR: Final = 12.0  # 0.12 s of waiting requests: 60 clients that wait for their answers are fewer
QUEUE_BURST_FACTOR: Final = 16.0  # 0.16 s of requests may come at once; a queue that is long for longer is no burst
QUEUE_REQUESTS_MIN: Final = 10  # waiting requests are always fine: a busy machine makes few requests look slow
QUEUE_INTERVAL_SECONDS: Final = 0.1  # without a refusal: then overload is over
QUEUE_SAMPLES: Final = 16  # requests that say what a request takes; one slow request says little
QUEUE_SAMPLE_FACTOR: Final = 8.0  # one request counts as at most so many others
QUEUE_REQUEST_SECONDS: Final = 0.001  # before there is a measurement
QUEUE_RETRY_SECONDS: Final = (1, 5)  # Retry-After, drawn at random: clients must not come back in one wave
WORKERS: Final = 64  # more processes than cores bring nothing
FORWARD_IDLE_CONNECTIONS: Final = 64  # idle connections to the leader, kept for the next write
FORWARD_IDLE_SECONDS: Final = 30  # shorter than the leader's idle timeout: no write meets a closing connection
FORWARD_ANSWER_SECONDS: Final = 60  # until the leader sends the head of its response
FORWARD_PART_BYTES: Final = 64 * KIB  # of a response buffered for a slow client
REQUEST_ID_CHARS: Final = 128
IDEMPOTENCY_KEY_CHARS: Final = 255
IDEMPOTENCY_KEEP_SECONDS: Final = 86_400
NODES_MAX: Final = 1000  # of a cluster, in a list of them
GROUP_COMMIT_MAX: Final = 512  # commands that share one fsync
GROUP_SLICE: Final = 16  # commands decided in one step of the event loop: about 2 ms
GROUP_SHARE: Final = 0.25  # of the time since the last slice that the next one may take, if the event loop is busy
GROUP_SLICE_SECONDS: Final = 0.02  # and its bound
DELETED_SERVERS: Final = 20_000  # withdrawn MCP servers that the registry API reports, about 300 bytes each
SERVER_INDEX_SECONDS: Final = 0.05  # making the list of MCP servers for longer than this is a burden on other requests:
SERVER_INDEX_SHARE: Final = 20  # it then takes one twentieth of the time at most
WORK_SLICE_SECONDS: Final = 0.003  # long work on the event loop yields to other requests this often
THREAD_SWITCH_SECONDS: Final = 0.0001  # with the default of 5 ms a busy event loop starves the commit thread
WRITE_QUEUE: Final = 10_000  # commands waiting for the writer; further ones get 503 with Retry-After
# The default thresholds would traverse the whole catalog several times a second under load; records have no cycles. An object
# is traversed once in each generation, so small ones cost no more: they make many pauses below 1 ms of a few of 40 ms and more.
COLLECTOR_THRESHOLDS: Final = (2000, 5, 2000)

# --- Caches (entries) ----------------------------------------------------------------------------
RECORD_CACHE: Final = 4096
RECORD_CACHE_BYTES: Final = 64 * MIB  # of memory: enough for RECORD_CACHE usual records, or 10 to 200 of the largest
NAME_SKELETON_CACHE: Final = 32_768  # about 200 bytes each
RENDERING_CACHE_BYTES: Final = 32 * MIB
ZONE_SET_BYTES: Final = 1232  # AID-12: fits into one datagram on every network
ZONE_AGENTS: Final = 64  # D12: agents named in the DNS by an organisation's index
ZONE_VALUES: Final = 16  # certificates or addresses named by one zone
LIVE_CERTIFICATE_SECONDS: Final = 10.0  # to fetch the certificate of a host that a zone is to name
CAPABILITY_VERSIONS: Final = 16  # old capability documents of one domain that cached DNS records may still name
HOSTED_DOCUMENTS: Final = 256  # signed documents of hosted agents; a signature costs 50 µs
HOSTED_DOCUMENTS_BYTES: Final = 16 * MIB
SUMMARY_CACHE_BYTES: Final = 72 * MIB  # summaries of about 110,000 agents: paging reads each once per page
AF_TEXT_CACHE_BYTES: Final = 64 * MIB  # case-folded texts of 100,000 agents, filled by substring searches
AF_PAGE_CACHE: Final = 64  # frequently requested pages of summaries
AF_SCAN_CACHE: Final = 32  # results of substring searches, so that paging through them scans once
AF_SCAN_IDS: Final = 10_000  # longer results are not cached
RATE_CALLERS: Final = 10_000  # callers with a token bucket
TOKEN_CACHE: Final = 4096
TERM_CACHE: Final = 65_536  # analysed words and tags, about 10 MiB; their frequencies follow Zipf's law
TERM_CACHE_CHARS: Final = 64  # longer words are hardly ever repeated
HEADER_CACHE: Final = 256  # protected JWS headers of at most 512 characters: one for each frequent signer
NAMED_DOMAIN_CACHE: Final = 1024  # ids split at their domain: one write asks for the same id about ten times
BOUND_KEY_CACHE: Final = 1024  # rows of the trust store with parsed keys, about 2 KiB each

# --- Embedders -----------------------------------------------------------------------------------
EMBEDDER_TOKENS: Final = 256  # of one text; more do not improve the vector of a sentence model
EMBEDDER_ENGLISH_TOKENS: Final = (
    64  # the same for the English model, which was trained with so many; its time grows with them
)
EMBEDDER_BATCH_TOKENS: Final = 1024  # encoded at once: about 30 ms, and the activations stay in the CPU cache
EMBEDDER_TOKEN_CACHE: Final = 32  # tokenized texts: a query and its clauses are needed by both vector spaces
EMBEDDER_VECTOR_CACHE: Final = 4096  # vectors of query texts, 1 KiB each
EMBEDDER_CACHED_BATCH: Final = 16  # a query and its clauses; larger batches are agents, which are not queried again

# --- Pages ---------------------------------------------------------------------------------------
PAGE_SESSION_SECONDS: Final = 12 * 3600  # a working day
PAGE_TOKEN_CHARS: Final = 2500  # encrypted, it fits into the 4096 bytes of a cookie
SIGN_IN_CODE_SECONDS: Final = 600  # to open the link that a terminal printed
SIGN_IN_CODES: Final = 1000  # redeemed codes, remembered against reuse; only this machine issues them
PAGE_AGENTS: Final = 25  # in a list and in search results
PAGE_CHANGES: Final = 12  # next to the catalog; the page of changes shows all
PAGE_CHANGE_CACHE: Final = 60  # for each audience, at most one per agent
PAGE_CHANGES_PENDING: Final = 500  # applied when a page is rendered: a millisecond of work
PAGE_AUDIENCES: Final = 1000  # audiences with cached changes: each reader of private agents is one
PAGE_FORM_BYTES: Final = 1 * MIB  # a percent-encoded document of the largest size
PAGE_CARD_CACHE: Final = 4096  # rendered cards, about 2 KiB each
PAGE_DOCUMENT_CHARS: Final = 60_000  # of a document shown on a page, which links to the complete one
PAGE_COUNT_CACHE: Final = 256  # filter counts, valid until the next change
PAGE_FACETS: Final = 12  # values shown of a filter
PAGE_EXAMPLES: Final = 12
PAGE_RELATED: Final = 8  # other agents of a publisher on the page of one
PAGE_HEALTH_AGENTS: Final = 10_000  # whose changes of health are remembered, with up to PAGE_HEALTH_CHANGES each
PAGE_HEALTH_CHANGES: Final = 20

# --- Client --------------------------------------------------------------------------------------
CLIENT_TIMEOUT_SECONDS: Final = 30.0
CALL_BYTES: Final = 4 * MIB  # of the answer of an agent
CALL_TASK_SECONDS: Final = 120  # that a caller waits for a task of an A2A agent
CALL_POLL_SECONDS: Final = 0.5
CALL_TOOL_PAGES: Final = 10  # of the tools of an MCP server
CALL_TOOLS_SHOWN: Final = 5  # in an error
CALL_ERROR_CHARS: Final = 200  # of an error that an agent answers
ANNOUNCE_START_SECONDS: Final = 5.0  # that the start of an announcer waits for the first announcements
KEEP_TTL_SECONDS: Final = 60  # the lease of an agent that a program keeps registered: so long it outlives a crash
KEEP_RENEWALS_PER_LEASE: Final = 3  # two may fail
CLIENT_ATTEMPTS: Final = 4  # with the back-off below, an unreachable service is reported within a second
CLIENT_BACKOFF_SECONDS: Final = 0.1  # doubled at each attempt, with full jitter
CLIENT_BACKOFF_MAX_SECONDS: Final = 10.0
CLIENT_RETRY_AFTER_MAX_SECONDS: Final = 60  # a longer Retry-After is returned to the caller as an error
CLIENT_WATCH_ATTEMPTS: Final = 60  # survives a restart or a short outage of the service
CLIENT_BATCH_LINES: Final = 500  # enough to share fsyncs, few enough for steady progress
CLIENT_BATCH_BYTES: Final = 4 * MIB
CLIENT_LINE_BYTES: Final = 16 * MIB  # far larger than any document; bounds a line without end
DIVERSITY_WINDOW: Final = 10  # consecutive results within which near duplicates are capped

# --- Doctor --------------------------------------------------------------------------------------
DOCTOR_CERTIFICATE_DAYS: Final = 14  # before a certificate expires: time to get another one
DOCTOR_QUOTA_SHARE: Final = 0.9  # of its stored bytes: an owner that uses more is named
DOCTOR_DISK_WARNING_BYTES: Final = 1024 * MIB
DOCTOR_DISK_DANGER_BYTES: Final = 100 * MIB  # a commit and its log need some space
DOCTOR_EARLIEST: Final = 1_735_689_600.0  # 2025-01-01: an earlier clock was never set
DOCTOR_EXAMPLES: Final = 10  # ids in one finding
DOCTOR_LAG_SECONDS: Final = 3600.0  # of a peer, beyond which it is reported
DOCTOR_SLICE: Final = 2000  # ids examined at a time: about 5 ms
DOCTOR_SKEW_SECONDS: Final = 30  # the leeway of tokens

# --- Keys and signatures -------------------------------------------------------------------------
KEY_BYTES: Final = 8 * KIB  # announce.md §1; an RSA key of 8192 bits has 1.5 KiB, a certificate rarely more than 3 KiB
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192  # larger keys would make verification a denial of service
RSA_EXPONENT_MIN: Final = 65_537  # smaller exponents make padding mistakes exploitable
JWS_BYTES: Final = 8 * KIB  # a token, or the header of a detached signature
JWKS_KEYS: Final = 64
JWKS_BYTES: Final = 64 * KIB
SIGNATURES: Final = 8  # checked on one document

# --- Owners --------------------------------------------------------------------------------------
TOKEN_TTL_MAX_SECONDS: Final = 86_400
ROTATION_CHECK_SECONDS: Final = 5.0  # until a rotation without the API is in the audit trail
IDENTITY_OVERLAP_SECONDS: Final = (
    7 * 86_400
)  # a replaced identity key is published and signs checkpoints: witnesses need time
KEY_OVERLAP_MAX_SECONDS: Final = 90 * 86_400
TOKEN_LEEWAY_SECONDS: Final = 30
LOGGED_ERRORS_PER_MINUTE: Final = 600  # without `access_log`: callers must not be able to fill the log
API_KEYS: Final = 10_000  # held in memory
API_KEY_TTL_MAX_SECONDS: Final = 100 * 365 * 86_400  # a time that every date type can represent
API_KEY_NOTE_CHARS: Final = 200
AGENTS_PER_OWNER: Final = 1000  # more than a team runs; larger imports are done by an admin
STORED_BYTES_PER_OWNER: Final = AGENTS_PER_OWNER * DOCUMENT_BYTES  # each of the largest size
HOURLY_BYTES_PER_OWNER: Final = 128 * MIB  # of new and changed records: AGENTS_PER_OWNER large ones, and some changes
INVITEES: Final = 100  # subjects that may read one private agent: each adds an audience token
SUBJECT_CHARS: Final = 256
READS_PER_MINUTE: Final = 3000  # 50 a second, sustained: a program, not a person
WRITES_PER_MINUTE: Final = 1200  # an owner of AGENTS_PER_OWNER agents can renew each once a minute
WRITE_LINES: Final = 100  # batch lines charged as one write: importing all agents of an owner costs ten
AUTH_FAILURES_PER_MINUTE: Final = 600  # of one address; then its credentials are rejected without verification

# --- External issuers and client certificates ------------------------------------------------------
JWKS_REFRESH_SECONDS: Final = 60  # between two fetches for an unknown key id: tokens must not trigger fetches at will
JWKS_FRESH_SECONDS: Final = 600  # after which keys are fetched again in the background
JWKS_KEEP_SECONDS: Final = 86_400  # how long the last keys are used while their issuer is unreachable
TOKEN_RECHECK_SECONDS: Final = 30  # after which a cached token is verified again: its issuer may have removed the key
SECRET_BYTES: Final = 32  # minimum of an HS256 secret: the size of the hash (RFC 7518 §3.2)
FILE_CHECK_SECONDS: Final = 5.0  # between two checks whether a file of keys or revocations changed
CERTIFICATE_CACHE: Final = 1024

# --- Domain proofs -------------------------------------------------------------------------------
PROOF_TTL_SECONDS: Final = 7 * 86_400  # a person edits the zone, perhaps after a weekend
PROOF_CLAIMS: Final = 32  # subjects that claim one domain
PROOF_DOMAINS: Final = 100  # claims of one subject
PROOF_FAILURES: Final = 3  # failed checks in a row that end a grant: an outage does not
PROOF_RECHECK_SECONDS: Final = 86_400
PROOF_RETRY_DIVISOR: Final = 24  # after a failure the next check comes after PROOF_RECHECK_SECONDS / this
PROOF_CONCURRENT_RECHECKS: Final = 8
PROOF_TXT_RECORDS: Final = 64  # read at the name of a proof
PROOF_LEVELS: Final = 8  # of a domain, from the top, that are queried for a proof
PROOF_UNANSWERED_PERIODS: Final = 7  # without any response of our resolver, until this counts as a failure
PROOF_DOMAINS_PER_WRITE: Final = 64  # domains that one registration is compared with

# --- Announcements (announce.md) -----------------------------------------------------------------
ANNOUNCE_BYTES: Final = 16 * KIB  # P-25: a public key of 8 KiB, metadata of 4 KiB, and some room
ANNOUNCE_FUTURE_SECONDS: Final = 60  # P-17: how far ahead a clock may be
ANNOUNCE_PAST_SECONDS: Final = 300  # P-17: a captured announcement is useless after this time
ANNOUNCE_DIGESTS: Final = 16  # last contents remembered of an object without a sequence (C12)
ANNOUNCE_DIGEST_SECONDS: Final = 86_400  # P-18
ROTATION_GRACE_SECONDS: Final = 86_400  # ANN-22
ROTATION_PAUSE_SECONDS: Final = 3600  # P-13: one rotation an hour slows down a thief of a key
PIN_UNUSED_SECONDS: Final = 90 * 86_400  # then a pin without rule or revocation is dropped: ids can be made up
PINS_PAGE: Final = 10_000  # pins read at a time at the start, about 5 MiB
PINNED_KEYS: Final = 32  # of one agent, including retired ones: the oldest retired ones are dropped first
ALLOW_RULES: Final = 100_000  # held in memory
RULE_CHARS: Final = 256
REASON_CHARS: Final = 256  # of a revocation
REVOCATIONS_READ: Final = 1000  # revocations read from the store at a time
VERSION_WARN_SECONDS: Final = 3600  # ANN-51: one warning for each peer
VERSION_PEERS: Final = 10_000  # peers with a remembered version

# --- Transports (announce.md §6) -----------------------------------------------------------------
SOCKET_MESSAGE_BYTES: Final = 64 * KIB  # P-26: one WebSocket message
SOCKETS: Final = 10_000  # sessions of one process
SOCKETS_PER_PRINCIPAL: Final = 20  # one subject, or one address without a token
SOCKETS_PER_ADDRESS: Final = 1000  # of all its subjects: a proxy that names its clients carries many addresses
SOCKET_FRAMES_PER_SECOND: Final = 50  # W5: of one session, including pings and fragments
SOCKET_FRAMES_BURST: Final = 100  # enough for a message of 64 KiB in fragments of 1 KiB
SOCKET_SLICE_BYTES: Final = 4 * KIB  # read before frames are counted: bounds a flood of empty frames
SOCKET_QUEUE_MESSAGES: Final = 256  # W6: queued for a slow reader
SOCKET_QUEUE_BYTES: Final = MIB
SOCKET_STALL_SECONDS: Final = 10  # a queue that stays full for this long ends the session
SOCKET_PING_SECONDS: Final = 30  # ANN-37: silence after which a ping is sent
SOCKET_SILENCE_SECONDS: Final = 60  # P-28: silence after which the session ends
SOCKET_CLOSE_SECONDS: Final = 5  # for the peer to acknowledge the close frame
SOCKET_RECHECK_SECONDS: Final = 20  # W9: an expired credential is noticed well within a minute
SOCKET_SUBSCRIPTIONS: Final = 32  # W10: of one session
SOCKET_SUBSCRIBED_AGENTS: Final = 10_000  # agents remembered per subscription, to report their removal
SOCKET_REFUSALS: Final = 16  # rejected messages in a row before the session ends with the last code
SOCKET_BACKOFF_SECONDS: Final = (1.0, 60.0)  # P-28: reconnect of a client, full jitter
SOCKET_OPEN_SECONDS: Final = 10  # for a connection and its handshake
DATAGRAM_BYTES: Final = 512  # ANN-31: not fragmented on any path
FRAGMENTS: Final = 16  # P-23: 8,000 bytes, enough for a key of 4096 bits and 4 KiB of metadata
FRAGMENT_SECONDS: Final = 2.0  # fragments are sent together; one that is missing by then was lost
FRAGMENT_PARTIALS: Final = 32  # incomplete messages of one source
FRAGMENT_BYTES: Final = MIB  # incomplete messages of all sources; the oldest are dropped
COOKIE_SECONDS: Final = 60  # rotation of the cookie secret: a verified source is accepted for one to two periods
TXT_BYTES: Final = 1300  # P-23: the record and its header fit into one Ethernet frame
TXT_READ_BYTES: Final = 9000  # the largest mDNS packet (RFC 6762 §17)
TXT_CHUNKS: Final = 16  # far more than TXT_BYTES need
TXT_STRING_BYTES: Final = 255  # one length byte
VERSION_ANSWER_SECONDS: Final = 60  # P-32: between two answers with our own major version to one source
DIRECTORY_AGENTS: Final = 10_000  # agents remembered by one listener (THREATS: mDNS cache records)
DIRECTORY_AGENTS_PER_SOURCE: Final = 2_000  # twice what one process announces; leaves room for other machines
TRUST_FILE_PINS: Final = 20_000  # keys pinned on first use by a listener, about 10 MiB; then the oldest are dropped
DIRECTORY_SWEEP_SECONDS: Final = 0.25  # ANN-41 requires expiry within a second
ANSWERS_PER_SECOND: Final = 10  # P-24: to one source, and its burst
ANSWER_DELAY_SECONDS: Final = (0.020, 0.120)  # P-24: spreads the answers of many hosts
ANSWER_SOURCES: Final = 4096  # sources with a token bucket
PENDING_ANSWERS: Final = 256  # delayed answers; further queries are dropped
SOURCE_PACKETS_PER_SECOND: Final = 250  # of one machine; a thousand agents on it send 200 a second
SOURCE_PACKETS_BURST: Final = 1000  # all of them answer one query
NOISY_SOURCE_PACKETS_PER_SECOND: Final = 10  # of an address that sends thousands, even if others share it
PACKETS_PER_SECOND: Final = 500  # of all sources, because addresses can be forged: verifying a message takes 0.3 ms
UNKNOWN_SOURCE_PACKETS_PER_SECOND: Final = 100  # of all sources without a verified message, while addresses are forged
KNOWN_SOURCE_AFTER_SECONDS: Final = 5  # a source verified this long before a flood is not part of it
KNOWN_SOURCES: Final = 64  # accepted during a flood: each is compared with every packet
PACKETS_BURST: Final = 2000
PACKET_QUEUE: Final = 2000  # accepted packets waiting to be processed: one burst, about 3 MiB
LAN_CONCURRENT_WRITES: Final = 1  # announcements that a registry processes at a time, to keep the event loop free
LAN_WRITE_PAUSE_SECONDS: Final = 0.003  # after each of them, for other requests: allows about 150 a second
LAN_SETTLE_SECONDS: Final = 0.2  # delay of an agent's first announcement: a flood is detected by then
LAN_CONCURRENT_RENEWALS: Final = 8  # unchanged announcements, which only renew a lease: 500 a second in group commits
LAN_RENEWAL_PAUSE_SECONDS: Final = 0.01
LAN_REVERIFY_SECONDS: Final = 30  # after which an unchanged announcement is verified again: its key may be revoked
LAN_QUEUE: Final = 512  # announcements waiting for it; further ones are dropped, and repeated by their sender
PACKET_READ_SLICE_SECONDS: Final = 0.00025  # reading from a socket at a time: ten or twenty packets
PACKET_READ_PAUSE_SECONDS: Final = (0.001, 0.004)  # between two reads: shortest, and longest if no packet was accepted
PACKET_WORK_SLICE_SECONDS: Final = 0.0005  # processing at a time: two announcements, or twenty queries
PACKET_WORK_PAUSE_SECONDS: Final = 0.001  # between two slices: leaves the event loop to requests
LAN_READ_PAUSE_SECONDS: Final = 0.003  # the same for a registry, which registers more slowly than it reads
LAN_QUEUE_PER_SOURCE: Final = 64  # half a second of work: bounds a flood before it is detected
ANNOUNCED_TTL_SECONDS: Final = (10, 3600)  # P-7: of a LAN message, whose ttl nobody signs
MDNS_TTL_SECONDS: Final = 10  # ANN-30
MDNS_CROWDED_INSTANCES: Final = 50  # P-21: with more instances on a link, records use MDNS_CROWDED_TTL_SECONDS
MDNS_CROWDED_TTL_SECONDS: Final = 120
MDNS_NAMES: Final = 5  # instance names tried before a conflict is reported
MDNS_CONCURRENT_FETCHES: Final = 8  # announcements fetched from the address in a record
UDP_PORT: Final = 49353  # P-24
LAN_TTL_SECONDS: Final = 120  # of a message without a ttl
LOCAL_AGENTS: Final = 1000  # announced by one process on one transport: as many as an owner may have
PENDING_QUERIES: Final = 256  # queries of one process that wait for answers
ANSWERS_PER_QUERY: Final = 1000
RESIGN_SECONDS: Final = 60  # P-16: an announcer signs again at least this often
ROTATION_ANNOUNCED_SECONDS: Final = 7 * 86_400  # P-13: how long an announcer sends its rotation proof
ANNOUNCE_JITTER: Final = 0.1  # P-21: of the interval, so that agents do not synchronise
ECHO_SECONDS: Final = 1.0  # for our own announcement to come back; three misses and an interval are shorter than a ttl
ANNOUNCE_RETRY_SECONDS: Final = 5  # after a failure; doubled up to the usual interval
POSITIVE_CACHE_SECONDS: Final = 300  # P-31: never longer than the ttl of the answer
NEGATIVE_CACHE_SECONDS: Final = 5  # P-31
QUERY_CACHE: Final = 1024  # queries with cached answers
BUS_OPEN_SECONDS: Final = 5  # for a connection to the bus, and for its acknowledgement of a message
BUS_RECONNECT_SECONDS: Final = 1  # after the bus closed the connection
BUS_PING_SECONDS: Final = 20  # a bus that misses two pings is considered down
BUS_PENDING: Final = 8192  # unread messages of one subscription; further ones are dropped
BUS_PENDING_BYTES: Final = 8 * MIB
DUPLICATE_WINDOW_SECONDS: Final = 2.0  # B5: drops identical bytes; announcers repeat every 5 seconds at the fastest
DUPLICATE_WINDOW_MESSAGES: Final = 4096
REDELIVERY_DELAYS_SECONDS: Final = (0.1, 0.5)  # B3: three attempts
DEAD_LETTERS: Final = 64  # the last messages that failed: a MiB at most
DEAD_LETTER_SECONDS: Final = 30  # until identical bytes are tried again

# --- Outgoing requests ---------------------------------------------------------------------------
FETCH_CONNECT_SECONDS: Final = 2.0  # for the name, the connection and the handshake, each
FETCH_TOTAL_SECONDS: Final = 5.0  # however slowly the response trickles in
FETCH_SMALL_BYTES: Final = 4 * KIB  # a health response or a proof; as in the MCP registry
FETCH_CARD_BYTES: Final = DOCUMENT_BYTES
FETCH_PAGE_BYTES: Final = 4 * MIB  # a page of a peer or a catalog
FETCH_HEADER_BYTES: Final = 16 * KIB
FETCH_REDIRECTS: Final = 3  # within one site, to https only
FETCH_URL_CHARS: Final = 2048
FETCH_CONCURRENCY: Final = 200  # with FETCH_TOTAL_SECONDS: how much of this process strangers can occupy
FETCH_PER_ADDRESS: Final = 4  # prevents amplification against one victim
FETCH_WAITING: Final = 1000  # queued fetches; further ones are rejected
FETCH_HEALTH_PAUSE_SECONDS: Final = 10  # between two checks of one address and port, however many agents name it
HEALTH_CONCURRENCY: Final = 200  # 5,000 dead endpoints with a timeout of two seconds take less than a minute
HEALTH_UNPACED_CHECKS: Final = 16  # running checks beyond which a new one starts every HEALTH_PACE_SECONDS
HEALTH_PACE_SECONDS: Final = 0.009
HEALTH_SECONDS: Final = 60  # between two checks of an endpoint, with HEALTH_JITTER
HEALTH_GENTLE_SECONDS: Final = 300  # the same where `health_checks` is not set
HEALTH_GENTLE_PACE_SECONDS: Final = 0.05  # at most 20 checks a second then, however many agents are due
HEALTH_JITTER: Final = 0.2
HEALTH_FAILURES: Final = 3  # in a row until the agent is no longer listed
HEALTH_FAILURE_SPACING: Final = 0.5  # of the interval: failures closer together count once, however often agents write
HEALTH_SUCCESSES: Final = 2  # in a row until it is listed again
HEALTH_BACKOFF: Final = 8  # an endpoint that stays dead is checked this many times less often
HEALTH_EVICT_SECONDS: Final = 86_400  # unhealthy and not renewed for this long: the record is removed
OUTAGE_MIN_ENDPOINTS: Final = 50  # failing at once, and more than half of all: our own network may be down
OUTAGE_HOLD_SECONDS: Final = 3600  # how long no agent is delisted then
FETCH_OPT_OUT_SECONDS: Final = 86_400  # an endpoint that answers 410 is not checked for this long
FETCH_PACED_ADDRESSES: Final = 20_000  # addresses with a remembered last check
FETCH_DISCREET_SECONDS: Final = FETCH_TOTAL_SECONDS  # delay of a reported connection failure, which hides its cause
FETCH_ADDRESSES: Final = 16  # of one name; more indicate a scan, not a server
FETCH_DOCUMENTS: Final = 1000  # of one catalog imported by one fetch

# --- The DNS -------------------------------------------------------------------------------------
DNS_UDP_BYTES: Final = 1232  # not fragmented on any path (DNS flag day 2020)
DNS_MESSAGE_BYTES: Final = 65_535  # the largest message over TCP
DNS_RECORDS: Final = 2000  # of one message; more fit into 64 KiB, but no honest zone needs them
DNS_SECONDS: Final = 5.0  # for one lookup including its proof (D13)
DNS_TRY_SECONDS: Final = 1.5  # for one answer over UDP, before the query is repeated
DNS_TRIES: Final = 2  # of one query to one server
DNS_CONCURRENT_QUERIES: Final = 100  # the socket buffer of a resolver holds about 160 unread queries
DNS_CONCURRENT_LOOKUPS: Final = 50  # further lookups wait before their deadline starts
DNS_IDLE_SECONDS: Final = 10.0  # how long a connection to a resolver is kept open
DNS_CACHE_ANSWERS: Final = 8000  # and as many zone cuts
DNS_CACHE_MESSAGES: Final = 2000  # of 3 to 10 KiB each, needed while they are validated
DNS_TTL_MIN_SECONDS: Final = 5  # D14: bounds queries for records with a shorter TTL
DNS_TTL_MAX_SECONDS: Final = 86_400  # D14: a withdrawn record is used for at most a day
DNS_QUERIES: Final = 64  # for one lookup: a chain of eight zones takes sixteen
DNS_ALIASES: Final = 8  # D1: links of CNAME and DNAME
DNS_LABELS: Final = 24  # of a name with a chain of trust; each may cost two queries
DNS_PREFETCH_ZONES: Final = 6  # parent zones whose keys are requested before they are known to be needed
DNS_UPDATE_SECONDS: Final = 30.0  # for an update: the server signs and writes before it answers
ZONE_JOURNAL: Final = 32  # updates of one agent's records that can be undone
ZONE_SETS: Final = 50_000  # record sets of a zone of `dns serve`, which signs the whole zone at each update
DNSSEC_SIGNATURES: Final = 8  # D13: verified for one record set (CVE-2023-50387)
DNSSEC_SIGNATURES_READ: Final = 16  # parsed for one record set; a zone that changes its algorithm has four
DNSSEC_KEYS: Final = 64  # of one zone; a key rollover needs a handful
DNSSEC_SIGNATURES_PER_LOOKUP: Final = 64  # a chain of eight zones takes about thirty
DNSSEC_COLLIDING_KEYS: Final = 4  # D13: keys of one zone with the same tag and algorithm
DNSSEC_NSEC3_ITERATIONS: Final = 150  # D13: more are treated as unsigned (RFC 9276 §3.2)
DNSSEC_NSEC3_HASHES: Final = 256  # names hashed for one lookup (CVE-2023-50868)
DNSSEC_DENIALS: Final = 16  # NSEC or NSEC3 records read of one answer; four suffice for any proof
DNSSEC_ANCHORS_BYTES: Final = 256 * KIB  # a file of trust anchors

# --- From a domain to an agent (adp.md, dns-aid.md AID-26) -----------------------------------------
SVCB_PARAMS: Final = 64  # of one record; unbound's limit (D6)
SVCB_RECORDS: Final = 64  # of one name: as many agents as a list of aliases may name (D12)
SVCB_TARGETS: Final = 4  # servers tried one after another
ALIAS_CHAIN: Final = 8  # aliases in a row, not counting CNAMEs (D1)
AGENT_TXT_RECORDS: Final = 16  # read at one name
DESCRIPTOR_BYTES: Final = 256_000
DESCRIPTOR_SECONDS: Final = 12.0  # for a document or index named in the DNS, however slowly it trickles in (AID-26)
INDEX_BYTES: Final = MIB
INDEX_AGENTS: Final = 500
INDEX_STEPS: Final = 64  # trace steps reported for one index; further ones are only counted
INDEX_CONCURRENCY: Final = 8  # agents of one organisation resolved in parallel
ORGANISATION_AGENTS: Final = 64  # of one organisation registered by one call
LINKAGE_CANDIDATES: Final = 512  # records of one owner and organisation compared with an agent: a whole index
LINKAGE_SLICE: Final = 5_000  # agents scanned for them at a time: half a millisecond
DOCUMENT_TTL_SECONDS: Final = 3600  # of a document without a ttl (ADP-31)
DOCUMENT_TTL_MAX_SECONDS: Final = 86_400
TLSA_RECORDS: Final = 32  # of one name that are compared
AID_PROOF_SECONDS: Final = 300  # validity of a proof of an AID key
AID_PROOF_SKEW_SECONDS: Final = 60
RESOLVE_COST: Final = 50  # in reads: one resolution a second at the default rate
RESOLUTION_CACHE: Final = 1000  # resolutions in memory while they are valid
RESOLUTION_CACHE_BYTES: Final = 32 * MIB
CONCURRENT_RESOLUTIONS: Final = 64  # each holds sockets; further callers wait
RECHECK_SECONDS: Final = 86_400  # between two resolutions of the domain that an agent was imported from
CONCURRENT_RECHECKS: Final = 8

# --- Conversations (adp.md §6) -------------------------------------------------------------------
AGP_FRAME_BYTES: Final = MIB  # P-2
AGP_CONTENT_BYTES: Final = 900 * KIB  # of one message: leaves room for JSON escapes and the envelope of a frame
AGP_RESULT_BYTES: Final = 512 * KIB  # of JSON as content: each of its quotes takes two bytes when escaped
AGP_NAME_CHARS: Final = 320  # an Agent URI: a domain has up to 253
AGP_ID_CHARS: Final = 128  # a UUID has 36; other senders use more
AGP_NONCE_CHARS: Final = (22, 256)  # P-2: at least 16 random bytes
AGP_PAST_SECONDS: Final = 300  # ADP-49
AGP_FUTURE_SECONDS: Final = 60  # ADP-49
AGP_REPLAY_SECONDS: Final = 420  # ADP-50: both windows, and a minute for clock adjustments
AGP_REPLAY_CACHE: Final = 100_000  # ids in memory; then the oldest are dropped
AGP_HANDSHAKE_SECONDS: Final = 10.0  # P-2
AGP_HEARTBEAT_SECONDS: Final = 30.0  # W8
AGP_SILENCE_SECONDS: Final = 90.0  # W8: silence after which the session ends
AGP_WINDOW: Final = 256  # unacknowledged messages of one conversation
AGP_QUEUE: Final = 256  # messages of one conversation that wait for a handler; then reading stops
AGP_SIGN_SLICE: Final = 24  # messages signed before other tasks run
AGP_POOL_MIN_SIGNATURES: Final = 4  # fewer are not split over two threads: waking one takes as long as a signature
AGP_POOL_MIN_BYTES: Final = (
    64 * KIB
)  # fewer bytes are signed in one thread: below this, hashing costs less than the curve
AGP_ACK_IDS: Final = 128  # messages covered by one acknowledgement
AGP_ACK_BATCH: Final = 8  # messages acknowledged without waiting for more
AGP_ACK_SECONDS: Final = 0.004  # how long an acknowledgement waits for further messages
AGP_STALL_SECONDS: Final = 10.0  # W6: a peer that accepts no data for this long loses its session, not its messages
AGP_CLOSE_SECONDS: Final = 5.0  # for the closing handshake
AGP_RECONNECT_SECONDS: Final = 0.25  # for the old connection of a returning peer to close; then it is cut
AGP_OUTBOX: Final = 100_000  # undelivered messages of one agent
AGP_OUTBOX_PER_PEER: Final = 1000  # of them for one peer, so that it cannot fill the outbox
AGP_ANSWERS_SECONDS: Final = 3600  # how long the service keeps an undelivered answer
AGP_OUTBOX_SECONDS: Final = 7 * 86_400  # then an undelivered message is dropped
AGP_DEDUP_SECONDS: Final = 8 * 86_400  # acknowledged ids are remembered longer than a sender repeats them
AGP_PARTS: Final = 10_000  # of one streamed answer
AGP_ANSWER_SECONDS: Final = 120.0  # default timeout of a request
AGP_SOCKETS: Final = 5_000  # sessions of one process of the service
AGP_PENDING_HANDSHAKES: Final = 8  # of one address
AGP_SESSIONS_PER_AGENT: Final = 8  # verified sessions of one agent with the service
AGP_FRAMES_PER_SECOND: Final = 400.0  # WebSocket frames: a message of 1 MiB may come in many fragments
AGP_FRAMES_BURST: Final = 2000.0
AGP_HANDSHAKES_PER_MINUTE: Final = 120  # of one address: each may cause DNS queries
AGP_MESSAGES_PER_SECOND: Final = 20.0  # W5: of one session with the service; each is stored for a day
AGP_MESSAGES_BURST: Final = 200
AGP_LINE_PER_SECOND: Final = 300.0  # of a relayed agent: its messages to all of its peers
AGP_LINE_BURST: Final = 1500
AGP_SERVICE_DEDUP_SECONDS: Final = 86_400  # message ids remembered by the service: no sender waits longer
AGP_MAILBOX: Final = 1000  # messages stored for one offline agent
AGP_MAILBOX_BYTES: Final = 8 * MIB
AGP_MAILBOX_PER_SENDER: Final = 200  # of them by one sender, so that it cannot fill the mailbox
AGP_MAILBOX_SECONDS: Final = 240  # ADP-49: after 300 seconds the receiver has to reject it
RELAY_AGENTS: Final = 1000  # agents connected to one relay
RELAY_SESSIONS_PER_AGENT: Final = 64  # concurrent conversations of one agent through its relay

# --- Tasks, swarms, invitations ------------------------------------------------------------------
TASK_BYTES: Final = 256 * KIB  # input of one task; larger inputs are passed by URL
TASK_RESULT_BYTES: Final = MIB  # twice the size of fifty candidates with all their evidence
TASK_NAME_CHARS: Final = 128
TASKS_PER_CALLER: Final = 100  # unfinished: one caller must not fill the queue
TASKS_PER_AGENT: Final = 1000  # queued for one agent; further ones get 429 with Retry-After
CONCURRENT_TASKS: Final = 8  # executed by the service itself while it serves requests
TASK_RUN_SECONDS: Final = 30.0  # of one attempt of the service's own tasks
TASK_ATTEMPTS: Final = 3  # a task that was started this often without a result probably kills its worker
TASK_TTL_SECONDS: Final = 86_400  # then an unfinished task fails
TASK_TTL_MIN_SECONDS: Final = 10
TASK_TTL_MAX_SECONDS: Final = 7 * 86_400
TASK_KEEP_SECONDS: Final = 86_400  # how long a result can be read
TASKS_DONE_PER_CALLER: Final = 1000  # with readable results; then the oldest are dropped
TASKS_PAGE: Final = 16  # tasks of a queue in memory at a time: each may have TASK_BYTES
TASK_LEASE_SECONDS: Final = 300  # a worker renews its lease within this time, or another may take the task
TASK_LEASE_MIN_SECONDS: Final = 5
TASK_LEASE_MAX_SECONDS: Final = 3600
TASKS_PER_TAKE: Final = 20  # taken by one worker in one call
TASK_WAIT_SECONDS: Final = 30  # long poll of a worker: well below the idle timeout of a connection
TASK_POLL_SECONDS: Final = (2, 5, 15, 60, 300)  # delays between status requests for a task sent to another service
CALLBACK_DELAYS_SECONDS: Final = (2, 10, 60)  # P-5: three retries, with a jitter of half the delay
CONCURRENT_CALLBACKS: Final = 16
SIGNED_PAST_SECONDS: Final = 300  # ADP-49: older signatures are rejected
SIGNED_AHEAD_SECONDS: Final = 60
SIGNED_KEEP_SECONDS: Final = 420  # ADP-50: signed requests are remembered for both windows and a minute
SWARMS: Final = 10_000  # of one service
SWARMS_PER_CALLER: Final = 100
SWARM_MEMBERS: Final = 256
SWARM_DELIVERIES_PER_HOST: Final = 16  # of one message to URLs of one server: prevents amplification (S8)
SWARM_ROLE_CHARS: Final = 64
SWARM_MESSAGE_BYTES: Final = 64 * KIB
SWARM_MESSAGES: Final = 256  # of one swarm that can be read again
SWARM_MESSAGE_KEEP_SECONDS: Final = 86_400
SWARM_KEEP_SECONDS: Final = 30 * 86_400  # an inactive swarm is deleted after this time
FORWARDED_MESSAGES: Final = 256  # of swarms, for agents connected to one other node: 16 MiB at most
FORWARDED_SECONDS: Final = 60  # then a node that does not send them is gone; members can still read them
INVITATIONS_PER_AGENT: Final = 1000
INVITATION_USES: Final = 1000  # one invitation for a whole company; a larger audience is a public agent
INVITATION_TTL_SECONDS: Final = 7 * 86_400
INVITATION_TTL_MIN_SECONDS: Final = 60
INVITATION_TTL_MAX_SECONDS: Final = 365 * 86_400
INVITATION_CODE_BYTES: Final = 20  # P-6 requires 16

REASON_TEXTS: Final = 4096  # texts of returned agents whose terms are remembered: at most 8 KiB each
REASON_CACHE: Final = 8192  # reasons of recent results: a sentence of about 100 bytes each

# --- Peers ----------------------------------------------------------------------------------------

PEERS: Final = 256  # each one has a task of its own
PEER_RECORDS: Final = 100_000  # of one peer: more pause nothing else, and need a setting of their own
PEER_RECORDS_MAX: Final = 10_000_000
PEER_NAMESPACES: Final = 64
PEER_PAGE: Final = 1000  # records in a page of the feed
PEER_PAGE_MAX: Final = 2000
PEER_BATCH: Final = 250  # that are asked for and stored at a time: other work waits about 5 ms for a commit
PEER_SLICE_SECONDS: Final = 0.0005  # reading and decoding records before other work runs: searches take milliseconds
PEER_UNSLICED_BYTES: Final = 64 * KIB  # of JSON that is split on the event loop: a tenth of a millisecond
PEER_PAGES: Final = (
    50_000  # of one reading, which then has no end: half a minute of empty pages, or 5 million MCP servers
)
PEER_PROBE_SECONDS: Final = 20.0  # to find out what a peer is: less than clients wait, with the preview
PEER_PREVIEW_SECONDS: Final = 5.0  # that a dry run reads
PEER_SAMPLE: Final = 10  # ids that a dry run shows
PEER_REFRESH_SECONDS: Final = (
    5.0  # after an agent is gone here, until that of a peer is read again: it may be gone, too
)
PEER_REFRESH_PAUSE_SECONDS: Final = (
    60.0  # between two such readings: somebody may register and withdraw one id for ever
)
PEER_TWINS: Final = 32  # agents signed by one key that are compared with a copy
PEER_REREADS: Final = 3  # of everything, because agents are missing, before the peer is left alone for a while
PEER_CURSORS: Final = 4096  # that are remembered, to notice when they come back
PEER_LEASE_SECONDS: Final = 2.0  # between two looks whether this node of a cluster is to pull
PEER_WAIT_SECONDS: Final = 5.0  # a long poll: short, so that a dead connection is noticed soon
PEER_WAIT_MAX_SECONDS: Final = 30.0
PEER_DOUBT_SECONDS: Final = 1.0  # instead, while the digest of the peer does not match
PEER_FETCH_SECONDS: Final = 30.0  # the long poll, and 4 MiB over a slow line
PEER_SILENCE_SECONDS: Final = 10.0  # without a byte: the connection is dead
PEER_PAGE_PAUSE_SECONDS: Final = 0.1  # between two polls: changes within it share a page
PEER_PAUSED_SECONDS: Final = 60.0  # between two looks whether a paused peer was resumed
PEER_SAVE_SECONDS: Final = 60.0  # between two writes of an unchanged state
PEER_BACKOFF_SECONDS: Final = 1.0
PEER_BACKOFF_MAX_SECONDS: Final = 60.0
PEER_HOPS: Final = 3  # services between an origin and this one
PEER_STORED_BYTES: Final = 4096 * MIB  # of the documents of one peer: PEER_RECORDS of 40 KiB
PEER_PARKED: Final = 10_000  # records of one peer that are not taken, with their reasons
PEER_MISMATCHES: Final = 3  # digests that do not match, one after the other, before everything is read again
PEER_BRAKE_RECORDS: Final = 50  # more missing at once than this, and than a share, stop a pull
PEER_BRAKE_SHARE: Final = 0.2
PEER_EVERY_SECONDS: Final = 300.0  # between two readings of a peer without a feed
PEER_OVERLAP_SECONDS: Final = 300.0  # of two readings of an MCP registry: clocks differ
PEER_MCP_PAGE: Final = 100  # the largest page of the official MCP registry
PEER_CATALOG_DEPTH: Final = 4  # ARD-8
PEER_CATALOGS: Final = 100  # read in one pass
PEER_CATALOG_ROOTS: Final = 16  # catalogs that one site names
PEER_CATALOG_ENTRIES: Final = 50_000  # ard.md P-5
PEER_CRAWL_BYTES: Final = 64 * MIB  # of all documents of one pass
PEER_HTML_BYTES: Final = MIB // 4  # of a page that may link to a catalog
PEER_CARDS: Final = 2000  # A2A cards that are fetched in one pass
PEER_CARD_CONCURRENCY: Final = 8
FETCH_CATALOG_BYTES: Final = 10 * MIB  # ard.md P-5

ASK_SECONDS: Final = 1.5  # for all peers together: the answer then has what is there
ASK_PEERS: Final = 8
ASK_BYTES: Final = 2 * MIB  # of one answer
ASK_CANDIDATES: Final = 20  # of one peer: each of them is read, judged and ranked here
ASK_CONCURRENCY: Final = 32  # searches that ask at the same time
ASK_FAILURES: Final = 3  # one after the other, before a peer is not asked for a while
FEED_TIME_CHARS: Final = 64
FEED_ETAG_CHARS: Final = 128
FEED_CURSOR_CHARS: Final = 1024  # it must fit into a URL
FEED_VIA: Final = 16  # services that an agent came through: more than are taken, to say why
FEED_READERS: Final = 64  # requests that wait at the feed at the same time

# --- Conformance checks of other services ----------------------------------------------------------
CONFORMANCE_REQUESTS: Final = 600  # of one run: all checks of all specifications, with those that write, send about 450
CONFORMANCE_SOCKETS: Final = 24  # WebSocket connections of one run
CONFORMANCE_CLEANUP_REQUESTS: Final = 40  # in addition, to remove throw-away agents after any other bound was reached
CONFORMANCE_ANSWER_BYTES: Final = 8 * MIB  # of one body; twice the largest response of this service
CONFORMANCE_HEADER_COUNT: Final = 200  # headers of one answer that are read
CONFORMANCE_TOTAL_BYTES: Final = 128 * MIB  # of all bodies
CONFORMANCE_TOTAL_SECONDS: Final = 300.0  # of one run, cleanup included
CONFORMANCE_CLEANUP_SECONDS: Final = 20.0  # of the total, reserved for the cleanup
CONFORMANCE_REQUEST_SECONDS: Final = 10.0
CONFORMANCE_WAITS_SECONDS: Final = 30.0  # all pauses that Retry-After asks for
CONFORMANCE_FAULTS_IN_A_ROW: Final = 3  # unanswered requests, after which the rest of a specification is left out
CONFORMANCE_EXCERPT_CHARS: Final = 1000  # of a body in the report
CONFORMANCE_EXCHANGES: Final = 4  # the last ones of a check, in the report
CONFORMANCE_PAGES: Final = 8  # of a list that is read page by page
CONFORMANCE_SAMPLE: Final = 5  # agents of a list that are read one by one
CONFORMANCE_MESSAGES: Final = 64  # read from one WebSocket
CONFORMANCE_EXPIRY_SECONDS: Final = 16.0  # until an announcement of the shortest lifetime (10 s) must be gone
