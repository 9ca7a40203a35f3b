"""The schema in PostgreSQL: numbered steps that only add.

A step is never edited after its release. Each names the oldest schema whose programs can still read the result
(`min_reader`), so that nodes of the release before run beside nodes of this one during an upgrade.

    log           one row per group of writes, in the order of commits: what every node applies to its replica
    agents …      the state after the last row of the log: a new node starts from it
    items         the key-value store
    secrets       sealed under the cluster key
    leases        which node does a chore; `epoch` grows with each new holder and fences the previous one
    vectors       of agents, which nodes compute for each other; they end with their agent, whichever release removes it
    index_files   of the search index of one node, for nodes that start with an empty folder

Names are found by their SHA-256 (`key`): an id may have more bytes than an index entry holds. Names are bytes (UTF-8), because
`text` has no U+0000 and sorts by locale, and so are documents, because they are returned byte for byte. Nothing depends on a
session, so a pool in transaction mode works.
"""

from __future__ import annotations

from typing import Final

import asyncpg
import msgspec

from waypost.errors import ConfigurationError

LOCK: Final = 0x5741_5950  # "WAYP": the advisory lock that orders groups and migrations

CHANNEL: Final = "waypost"  # of notifications: a hint that the log has grown


class SchemaStep(msgspec.Struct, frozen=True):
    statements: str
    min_reader: int  # programs that know fewer steps than this cannot use the database


_TABLES = """
CREATE TABLE waypost.log (
    position bigint PRIMARY KEY,        -- dense: a missing number is an error, never skipped
    first_revision bigint NOT NULL,     -- of the first change of this group; last_revision + 1 of the group before
    last_revision bigint NOT NULL,
    node uuid NOT NULL,
    number bigint NOT NULL,             -- of the group, counted by its node: a repeated call stores nothing twice
    names bigint[] NOT NULL,            -- 64-bit hashes of all names that the group wrote, for the read-set check
    payload bytea NOT NULL,
    checksum bytea NOT NULL,            -- of this row and, through the one before, of all earlier ones
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (node, number)
);
INSERT INTO waypost.log VALUES (0, 1, 0, '00000000-0000-0000-0000-000000000000', 0, '{}', '', '');
CREATE TABLE waypost.agents (
    key bytea PRIMARY KEY, id bytea NOT NULL, revision bigint NOT NULL, data bytea NOT NULL
);
CREATE TABLE waypost.aliases (
    key bytea PRIMARY KEY, alias bytea NOT NULL, id bytea NOT NULL
);
CREATE TABLE waypost.tombstones (
    key bytea PRIMARY KEY, id bytea NOT NULL, forget_at double precision NOT NULL, data bytea NOT NULL
);
CREATE INDEX tombstones_by_time ON waypost.tombstones (forget_at);
CREATE TABLE waypost.notes (key bytea PRIMARY KEY, name bytea NOT NULL, value bytea NOT NULL);
CREATE TABLE waypost.answers (key bytea PRIMARY KEY, forget_at double precision NOT NULL, data bytea NOT NULL);
CREATE INDEX answers_by_time ON waypost.answers (forget_at);
CREATE TABLE waypost.history (
    key bytea NOT NULL, revision bigint NOT NULL, id bytea NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (key, revision)
);
CREATE TABLE waypost.audit (number bigint PRIMARY KEY, entry bytea NOT NULL);
CREATE TABLE waypost.audit_tiles (
    level integer NOT NULL, number bigint NOT NULL, root bytea NOT NULL, hashes bytea NOT NULL,
    PRIMARY KEY (level, number)
);
CREATE TABLE waypost.meta (name text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE waypost.secrets (name text PRIMARY KEY, version bigint NOT NULL DEFAULT 1, sealed bytea NOT NULL);
CREATE TABLE waypost.items (
    kind text COLLATE "C" NOT NULL, key bytea NOT NULL, expires_at double precision, value bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX items_by_time ON waypost.items (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE waypost.leases (name text PRIMARY KEY, node uuid NOT NULL, epoch bigint NOT NULL, until timestamptz NOT NULL);
CREATE TABLE waypost.nodes (node uuid PRIMARY KEY, version text NOT NULL, seen_at timestamptz NOT NULL);
ALTER TABLE waypost.agents ALTER data SET STORAGE EXTERNAL;
ALTER TABLE waypost.log ALTER payload SET STORAGE EXTERNAL;
"""

# Called by nodes that know only the first three steps; see `_STORE_GROUP`.
_PUT_GROUP = """
CREATE FUNCTION waypost.put_group(
    p_node uuid, p_number bigint, p_seen bigint, p_checksum bytea, p_base bigint, p_reads bigint[], p_names bigint[],
    p_changes bigint, p_payload bytea, p_chore text, p_epoch bigint,
    p_agent_keys bytea[], p_agent_ids bytea[], p_agent_revisions bigint[], p_agents bytea[],
    p_alias_keys bytea[], p_aliases bytea[], p_alias_ids bytea[],
    p_tomb_keys bytea[], p_tomb_ids bytea[], p_tomb_times double precision[], p_tombs bytea[],
    p_note_keys bytea[], p_note_names bytea[], p_notes bytea[],
    p_answer_keys bytea[], p_answer_times double precision[], p_answers bytea[],
    p_removed_keys bytea[], p_history_keys bytea[], p_history_ids bytea[], p_history_revisions bigint[], p_history bytea[],
    p_history_keep integer, p_audit bytea[],
    OUT status text, OUT position_ bigint, OUT base bigint, OUT checksum_ bytea, OUT conflicts bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    head waypost.log;
    known waypost.log;
    rows_seen bigint;
    moved bigint;
    numbered bigint;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        RAISE EXCEPTION 'synchronous_commit is off' USING ERRCODE = 'WP001';
    END IF;
    PERFORM set_config('lock_timeout', '1500', true);
    PERFORM pg_advisory_xact_lock({lock});
    SELECT * INTO head FROM waypost.log ORDER BY position DESC LIMIT 1;
    SELECT * INTO known FROM waypost.log WHERE node = p_node AND number = p_number;
    IF FOUND THEN
        status := 'stored'; position_ := known.position; base := known.first_revision - 1; checksum_ := known.checksum;
        RETURN;
    END IF;
    IF p_seen > head.position OR (p_seen = head.position AND p_checksum <> head.checksum) THEN
        status := 'forked'; RETURN;
    END IF;
    IF p_chore IS NOT NULL AND NOT EXISTS (
        SELECT FROM waypost.leases WHERE name = p_chore AND node = p_node AND epoch = p_epoch AND until > clock_timestamp()
    ) THEN
        status := 'fenced'; RETURN;
    END IF;
    IF p_seen < head.position THEN
        SELECT count(*) INTO rows_seen FROM waypost.log WHERE position > p_seen;
        IF rows_seen <> head.position - p_seen OR rows_seen > 256 THEN
            status := 'behind'; RETURN;
        END IF;
        SELECT array_agg(DISTINCT name) INTO conflicts
        FROM waypost.log l, unnest(l.names) AS name WHERE l.position > p_seen AND name = ANY (p_reads);
        IF conflicts IS NOT NULL THEN
            status := 'conflict'; RETURN;
        END IF;
    END IF;
    IF p_payload IS NULL THEN
        status := 'unchanged'; position_ := head.position; base := head.last_revision; RETURN;
    END IF;
    base := head.last_revision;
    moved := base - p_base;
    position_ := head.position + 1;
    checksum_ := sha256(head.checksum || int8send(position_) || int8send(base) || p_payload);
    INSERT INTO waypost.log (position, first_revision, last_revision, node, number, names, payload, checksum)
    VALUES (position_, base + 1, base + p_changes, p_node, p_number, p_names, p_payload, checksum_);
    IF cardinality(p_agent_keys) > 0 THEN
        DELETE FROM waypost.agents a USING unnest(p_agent_keys, p_agents) AS n(key, data)
        WHERE a.key = n.key AND n.data IS NULL;
        INSERT INTO waypost.agents
        SELECT n.key, n.id, n.revision + moved, n.data
        FROM unnest(p_agent_keys, p_agent_ids, p_agent_revisions, p_agents) AS n(key, id, revision, data)
        WHERE n.data IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, data = excluded.data;
    END IF;
    IF cardinality(p_removed_keys) > 0 THEN
        DELETE FROM waypost.history WHERE key = ANY (p_removed_keys);
    END IF;
    IF cardinality(p_alias_keys) > 0 THEN
        DELETE FROM waypost.aliases a USING unnest(p_alias_keys, p_alias_ids) AS n(key, id)
        WHERE a.key = n.key AND n.id IS NULL;
        INSERT INTO waypost.aliases
        SELECT * FROM unnest(p_alias_keys, p_aliases, p_alias_ids) AS n(key, alias, id) WHERE n.id IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET id = excluded.id;
    END IF;
    IF cardinality(p_tomb_keys) > 0 THEN
        DELETE FROM waypost.tombstones t USING unnest(p_tomb_keys, p_tombs) AS n(key, data)
        WHERE t.key = n.key AND n.data IS NULL;
        INSERT INTO waypost.tombstones
        SELECT * FROM unnest(p_tomb_keys, p_tomb_ids, p_tomb_times, p_tombs) AS n(key, id, forget_at, data)
        WHERE n.data IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET forget_at = excluded.forget_at, data = excluded.data;
    END IF;
    IF cardinality(p_note_keys) > 0 THEN
        DELETE FROM waypost.notes o USING unnest(p_note_keys, p_notes) AS n(key, value)
        WHERE o.key = n.key AND n.value IS NULL;
        INSERT INTO waypost.notes
        SELECT * FROM unnest(p_note_keys, p_note_names, p_notes) AS n(key, name, value) WHERE n.value IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    END IF;
    IF cardinality(p_answer_keys) > 0 THEN
        INSERT INTO waypost.answers
        SELECT * FROM unnest(p_answer_keys, p_answer_times, p_answers)
        ON CONFLICT (key) DO UPDATE SET forget_at = excluded.forget_at, data = excluded.data;
    END IF;
    IF cardinality(p_history_keys) > 0 THEN
        INSERT INTO waypost.history
        SELECT n.key, CASE WHEN n.revision > p_base THEN n.revision + moved ELSE n.revision END, n.id, n.data
        FROM unnest(p_history_keys, p_history_revisions, p_history_ids, p_history) AS n(key, revision, id, data);
        DELETE FROM waypost.history h USING (
            SELECT key, revision, row_number() OVER (PARTITION BY key ORDER BY revision DESC) AS place
            FROM waypost.history WHERE key = ANY (p_history_keys)
        ) AS old WHERE h.key = old.key AND h.revision = old.revision AND old.place > p_history_keep;
    END IF;
    IF cardinality(p_audit) > 0 THEN
        SELECT coalesce(max(number), 0) INTO numbered FROM waypost.audit;
        INSERT INTO waypost.audit
        SELECT numbered + place, entry FROM unnest(p_audit) WITH ORDINALITY AS n(entry, place);
    END IF;
    PERFORM pg_notify('{channel}', position_::text);
    status := 'stored';
END $$;
""".replace("{lock}", str(LOCK)).replace("{channel}", CHANNEL)

# One lock orders the commits of all nodes. Each node puts the commits that wait into one transaction, so that they share it.
_COMMIT_ITEMS = """
CREATE FUNCTION waypost.commit_items(
    p_kinds text[], p_keys bytea[], p_expires double precision[], p_values bytea[],
    p_checked_kinds text[], p_checked_keys bytea[], p_expected bytea[], p_now double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        RAISE EXCEPTION 'synchronous_commit is off' USING ERRCODE = 'WP001';
    END IF;
    PERFORM set_config('lock_timeout', '1500', true);
    PERFORM pg_advisory_xact_lock({lock} + 1);
    IF EXISTS (
        SELECT FROM unnest(p_checked_kinds, p_checked_keys, p_expected) AS n(kind, key, expected)
        LEFT JOIN waypost.items i
            ON i.kind = n.kind AND i.key = n.key AND (i.expires_at IS NULL OR i.expires_at > p_now)
        WHERE i.value IS DISTINCT FROM n.expected
    ) THEN
        RETURN false;
    END IF;
    DELETE FROM waypost.items i USING unnest(p_kinds, p_keys, p_values) AS n(kind, key, value)
    WHERE i.kind = n.kind AND i.key = n.key AND n.value IS NULL;
    INSERT INTO waypost.items
    SELECT * FROM unnest(p_kinds, p_keys, p_expires, p_values) AS n(kind, key, expires_at, value) WHERE n.value IS NOT NULL
    ON CONFLICT (kind, key) DO UPDATE SET expires_at = excluded.expires_at, value = excluded.value;
    DELETE FROM waypost.items i USING (
        SELECT kind, key FROM waypost.items WHERE expires_at <= p_now LIMIT 64 FOR UPDATE SKIP LOCKED
    ) AS old WHERE i.kind = old.kind AND i.key = old.key;
    RETURN true;
END $$;
""".replace("{lock}", str(LOCK))

_CLAIM_LEASE = """
CREATE FUNCTION waypost.claim_lease(p_name text, p_node uuid, p_seconds double precision) RETURNS bigint
LANGUAGE sql AS $$
    INSERT INTO waypost.leases AS held (name, node, epoch, until)
    VALUES (p_name, p_node, 1, clock_timestamp() + make_interval(secs => p_seconds))
    ON CONFLICT (name) DO UPDATE SET
        epoch = held.epoch + (held.node <> excluded.node)::integer, node = excluded.node, until = excluded.until
    WHERE held.node = excluded.node OR held.until < clock_timestamp()
    RETURNING epoch
$$;
"""

# What a node says of itself; the release before writes the first three columns only.
_NODE_COLUMNS = """
ALTER TABLE waypost.nodes ADD COLUMN name text NOT NULL DEFAULT '', ADD COLUMN revision bigint NOT NULL DEFAULT 0,
    ADD COLUMN lag_seconds double precision NOT NULL DEFAULT 0;
"""

_VECTORS = """
CREATE TABLE waypost.vectors (
    key bytea PRIMARY KEY REFERENCES waypost.agents (key) ON DELETE CASCADE, data bytea NOT NULL
);
ALTER TABLE waypost.vectors ALTER data SET STORAGE EXTERNAL;
"""

# As `put_group`, which nodes of the release before go on to call, with less work for each group: no statement for tables that
# the group does not touch (NULL instead of arrays), a digest of the payload instead of the payload under the checksum, and no
# notification while there is no other node to hear it.
#
# The order matters. The lock comes first, and every statement after it sees all groups that committed before. A group that
# is stored already is answered as it was. Then the read set: if a later group wrote a name that this one read, nothing is
# written. Revisions that the node assumed are moved by as many as others took meanwhile. The lock ends with the
# transaction, so no client holds it across the network.
_STORE_GROUP = """
CREATE FUNCTION waypost.store_group(
    p_node uuid, p_number bigint, p_seen bigint, p_checksum bytea, p_base bigint, p_reads bigint[], p_names bigint[],
    p_changes bigint, p_payload bytea, p_digest bytea, p_chore text, p_epoch bigint,
    p_agent_keys bytea[], p_agent_ids bytea[], p_agent_revisions bigint[], p_agents bytea[], p_removed_keys bytea[],
    p_alias_keys bytea[], p_aliases bytea[], p_alias_ids bytea[], p_free_alias_keys bytea[],
    p_tomb_keys bytea[], p_tomb_ids bytea[], p_tomb_times double precision[], p_tombs bytea[], p_revived_keys bytea[],
    p_note_keys bytea[], p_note_names bytea[], p_notes bytea[], p_no_note_keys bytea[],
    p_answer_keys bytea[], p_answer_times double precision[], p_answers bytea[],
    p_ended_keys bytea[], p_history_keys bytea[], p_history_ids bytea[], p_history_revisions bigint[], p_history bytea[],
    p_history_keep integer, p_audit bytea[],
    OUT status text, OUT position_ bigint, OUT base bigint, OUT checksum_ bytea, OUT conflicts bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    head record;
    known record;
    rows_seen bigint;
    moved bigint;
    numbered bigint;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        RAISE EXCEPTION 'synchronous_commit is off' USING ERRCODE = 'WP001';
    END IF;
    PERFORM set_config('lock_timeout', '1500', true);
    PERFORM pg_advisory_xact_lock({lock});
    SELECT position, last_revision, checksum INTO head FROM waypost.log ORDER BY position DESC LIMIT 1;
    SELECT position, first_revision, checksum INTO known FROM waypost.log WHERE node = p_node AND number = p_number;
    IF FOUND THEN
        status := 'stored'; position_ := known.position; base := known.first_revision - 1; checksum_ := known.checksum;
        RETURN;
    END IF;
    IF p_seen > head.position OR (p_seen = head.position AND p_checksum <> head.checksum) THEN
        status := 'forked'; RETURN;
    END IF;
    IF p_chore IS NOT NULL AND NOT EXISTS (
        SELECT FROM waypost.leases WHERE name = p_chore AND node = p_node AND epoch = p_epoch AND until > clock_timestamp()
    ) THEN
        status := 'fenced'; RETURN;
    END IF;
    IF p_seen < head.position THEN
        SELECT count(*) INTO rows_seen FROM waypost.log WHERE position > p_seen;
        IF rows_seen <> head.position - p_seen OR rows_seen > 256 THEN
            status := 'behind'; RETURN;
        END IF;
        SELECT array_agg(DISTINCT name) INTO conflicts
        FROM waypost.log l, unnest(l.names) AS name WHERE l.position > p_seen AND name = ANY (p_reads);
        IF conflicts IS NOT NULL THEN
            status := 'conflict'; RETURN;
        END IF;
    END IF;
    IF p_payload IS NULL THEN
        status := 'unchanged'; position_ := head.position; base := head.last_revision; RETURN;
    END IF;
    base := head.last_revision;
    moved := base - p_base;
    position_ := head.position + 1;
    checksum_ := sha256(head.checksum || int8send(position_) || int8send(base) || p_digest);
    INSERT INTO waypost.log (position, first_revision, last_revision, node, number, names, payload, checksum)
    VALUES (position_, base + 1, base + p_changes, p_node, p_number, p_names, p_payload, checksum_);
    IF p_removed_keys IS NOT NULL THEN
        DELETE FROM waypost.agents WHERE key = ANY (p_removed_keys);
    END IF;
    IF p_agent_keys IS NOT NULL THEN
        INSERT INTO waypost.agents
        SELECT n.key, n.id, n.revision + moved, n.data
        FROM unnest(p_agent_keys, p_agent_ids, p_agent_revisions, p_agents) AS n(key, id, revision, data)
        ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, data = excluded.data;
    END IF;
    IF p_ended_keys IS NOT NULL THEN
        DELETE FROM waypost.history WHERE key = ANY (p_ended_keys);
    END IF;
    IF p_free_alias_keys IS NOT NULL THEN
        DELETE FROM waypost.aliases WHERE key = ANY (p_free_alias_keys);
    END IF;
    IF p_alias_keys IS NOT NULL THEN
        INSERT INTO waypost.aliases SELECT * FROM unnest(p_alias_keys, p_aliases, p_alias_ids)
        ON CONFLICT (key) DO UPDATE SET id = excluded.id;
    END IF;
    IF p_revived_keys IS NOT NULL THEN
        DELETE FROM waypost.tombstones WHERE key = ANY (p_revived_keys);
    END IF;
    IF p_tomb_keys IS NOT NULL THEN
        INSERT INTO waypost.tombstones SELECT * FROM unnest(p_tomb_keys, p_tomb_ids, p_tomb_times, p_tombs)
        ON CONFLICT (key) DO UPDATE SET forget_at = excluded.forget_at, data = excluded.data;
    END IF;
    IF p_no_note_keys IS NOT NULL THEN
        DELETE FROM waypost.notes WHERE key = ANY (p_no_note_keys);
    END IF;
    IF p_note_keys IS NOT NULL THEN
        INSERT INTO waypost.notes SELECT * FROM unnest(p_note_keys, p_note_names, p_notes)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    END IF;
    IF p_answer_keys IS NOT NULL THEN
        INSERT INTO waypost.answers SELECT * FROM unnest(p_answer_keys, p_answer_times, p_answers)
        ON CONFLICT (key) DO UPDATE SET forget_at = excluded.forget_at, data = excluded.data;
    END IF;
    IF p_history_keys IS NOT NULL THEN
        INSERT INTO waypost.history
        SELECT n.key, CASE WHEN n.revision > p_base THEN n.revision + moved ELSE n.revision END, n.id, n.data
        FROM unnest(p_history_keys, p_history_revisions, p_history_ids, p_history) AS n(key, revision, id, data);
        DELETE FROM waypost.history h USING (
            SELECT key, revision, row_number() OVER (PARTITION BY key ORDER BY revision DESC) AS place
            FROM waypost.history WHERE key = ANY (p_history_keys)
        ) AS old WHERE h.key = old.key AND h.revision = old.revision AND old.place > p_history_keep;
    END IF;
    IF p_audit IS NOT NULL THEN
        SELECT coalesce(max(number), 0) INTO numbered FROM waypost.audit;
        INSERT INTO waypost.audit
        SELECT numbered + place, entry FROM unnest(p_audit) WITH ORDINALITY AS n(entry, place);
    END IF;
    IF EXISTS (SELECT FROM waypost.nodes WHERE node <> p_node AND seen_at > clock_timestamp() - interval '15 seconds') THEN
        PERFORM pg_notify('{channel}', position_::text);
    END IF;
    status := 'stored';
END $$;
""".replace("{lock}", str(LOCK)).replace("{channel}", CHANNEL)

# Copies of files that each node can make: not in the WAL, and empty after a crash.
_INDEX_FILES = """
CREATE UNLOGGED TABLE waypost.index_files (
    name text COLLATE "C" NOT NULL, part integer NOT NULL, data bytea NOT NULL, PRIMARY KEY (name, part)
);
ALTER TABLE waypost.index_files ALTER data SET STORAGE EXTERNAL;
"""

STEPS: Final = (
    SchemaStep(_TABLES + _PUT_GROUP + _COMMIT_ITEMS + _CLAIM_LEASE, min_reader=1),
    SchemaStep(_NODE_COLUMNS, min_reader=1),
    SchemaStep(_VECTORS, min_reader=1),
    SchemaStep(_STORE_GROUP, min_reader=1),
    SchemaStep(_INDEX_FILES, min_reader=1),
)

_PREPARE = """
CREATE SCHEMA IF NOT EXISTS waypost;
CREATE TABLE IF NOT EXISTS waypost.schema (
    version integer PRIMARY KEY, min_reader integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
);
"""


async def find_version(connection: asyncpg.Connection) -> tuple[int, int]:
    """The version of the schema and its `min_reader`; 0 in a database without it."""
    if await connection.fetchval("SELECT to_regclass('waypost.schema')") is None:
        return 0, 0
    row = await connection.fetchrow("SELECT version, min_reader FROM waypost.schema ORDER BY version DESC LIMIT 1")
    return (row[0], row[1]) if row is not None else (0, 0)


async def migrate(connection: asyncpg.Connection) -> None:
    """Apply the missing steps, each in a transaction. Nodes that start at the same time wait for each other."""
    while True:
        version, min_reader = await find_version(connection)
        if min_reader > len(STEPS):
            raise ConfigurationError(
                f"The database was migrated by a newer release (schema {version}, readable from {min_reader} on; this "
                f"release knows {len(STEPS)}).",
                path="store",
                hint="Install that release on this node.",
            )
        if version >= len(STEPS):
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            if (await find_version(connection))[0] != version:
                continue
            await connection.execute(_PREPARE + STEPS[version].statements)
            await connection.execute(
                "INSERT INTO waypost.schema (version, min_reader) VALUES ($1, $2)",
                version + 1,
                STEPS[version].min_reader,
            )
