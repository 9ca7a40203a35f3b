"""What documents, records and their leases may be."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB, MIB

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
