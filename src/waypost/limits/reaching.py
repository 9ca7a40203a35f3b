"""What is asked of others: requests, names, domains."""

from __future__ import annotations

from typing import Final

from waypost.limits.documents import DOCUMENT_BYTES
from waypost.limits.sizes import KIB, MIB

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
KIN_CANDIDATES: Final = 512  # records of one owner and one organisation that are compared with an agent: a whole index
KIN_TURN: Final = 5_000  # agents that are passed over at a time on the way there: half a millisecond
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
