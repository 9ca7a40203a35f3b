"""What may be asked at once, followed and looked up later."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB, MIB

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
