-- Statistics of the PostgreSQL server, its sessions, our tables, replicas and slots. They read views
-- that a role without pg_monitor may read, too; it sees NULL for sessions of other roles.

-- name: limited
-- params:
-- Ends the next statement of this transaction after 2 s: pg_total_relation_size waits for a lock
-- that a migration or VACUUM FULL holds.
SELECT set_config('statement_timeout', '2000', TRUE)

-- name: server
-- params:
-- The server, the session or prepared transaction that began its transaction first, and the holder
-- of the oldest snapshot. Only those of this database, and of standbys, keep dead rows of ours. A
-- session without a snapshot keeps those that died since its first write. Vacuums keep none, nor
-- does a logical slot: its catalog_xmin is about catalogs alone.
WITH sessions AS MATERIALIZED (
  SELECT a.pid, a.datid, a.application_name, a.usename::text AS user_name, a.state, a.xact_start,
    greatest(age(a.backend_xmin), age(a.backend_xid)) AS xmin_age,
    coalesce(a.backend_type, 'client backend') AS backend_type
  FROM pg_stat_activity AS a
), own AS MATERIALIZED (
  SELECT d.oid, d.datname FROM pg_database AS d WHERE d.datname = current_database()
), holders AS MATERIALIZED (
  SELECT CASE s.backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS kind,
    s.pid, s.application_name AS application, s.user_name, s.state, s.xact_start AS began_at,
    s.xmin_age
  FROM sessions AS s, own
  WHERE s.pid <> pg_backend_pid() AND s.backend_type <> 'autovacuum worker'
    AND (s.datid = own.oid OR s.datid IS NULL)
  UNION ALL
  SELECT 'prepared', NULL, p.gid, p.owner, 'prepared', p.prepared, age(p.transaction)
  FROM pg_prepared_xacts AS p, own WHERE p.database = own.datname
  UNION ALL
  SELECT 'slot', r.active_pid, r.slot_name, NULL,
    CASE WHEN r.active THEN 'active' ELSE 'inactive' END, NULL, age(r.xmin)
  FROM pg_replication_slots AS r
), oldest AS (
  SELECT h.* FROM holders AS h WHERE h.began_at IS NOT NULL ORDER BY h.began_at LIMIT 1
), holding AS (
  SELECT h.* FROM holders AS h WHERE h.xmin_age IS NOT NULL ORDER BY h.xmin_age DESC LIMIT 1
), states AS (
  SELECT n.state, count(s.pid)::int AS number
  FROM (VALUES ('active'), ('idle'), ('idle in transaction')
        UNION SELECT coalesce(s.state, 'unknown') FROM sessions AS s
        WHERE s.backend_type = 'client backend') AS n (state)
  LEFT JOIN sessions AS s
    ON coalesce(s.state, 'unknown') = n.state AND s.backend_type = 'client backend'
  GROUP BY n.state
)
SELECT split_part(current_setting('server_version'), ' ', 1) AS version, current_user::text AS role,
  pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all,
  coalesce(g.xmin_age, 0) AS xmin_age,
  current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', TRUE)::int, 0) AS connections_limit,
  pg_database_size(own.oid) AS size_bytes,
  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_lsn() END, '0/0')::bigint AS wal_bytes,
  g.kind, g.pid AS holder_pid, g.application AS holder_name, g.user_name AS holder_user,
  g.state AS holder_state, o.pid, o.application, o.user_name, o.state,
  extract(epoch FROM clock_timestamp() - o.began_at)::float8 AS age_seconds,
  ARRAY(SELECT s.state FROM states AS s ORDER BY s.state) AS states,
  ARRAY(SELECT s.number FROM states AS s ORDER BY s.state) AS numbers
FROM own LEFT JOIN oldest AS o ON TRUE LEFT JOIN holding AS g ON TRUE

-- name: tables
-- params:
-- Our tables: rows by the statistics, bytes with indexes, and the last vacuum of either kind.
SELECT s.relname::text AS name, s.n_live_tup AS live_rows, s.n_dead_tup AS dead_rows,
  coalesce(pg_total_relation_size(s.relid), 0) AS size_bytes,
  extract(epoch FROM greatest(s.last_vacuum, s.last_autovacuum))::float8 AS vacuumed_at
FROM pg_stat_user_tables AS s WHERE s.schemaname = 'queuegate' ORDER BY s.relname

-- name: replicas
-- params:
-- Standbys and other receivers by name; of those with equal names, the one that lags most. An idle
-- standby has no measured lag, and neither has one that hangs: it lags since its last reply. A role
-- without rights sees no position.
SELECT r.application_name AS name,
  max(extract(epoch FROM CASE WHEN r.replay_lsn IS NOT NULL THEN greatest(r.replay_lag, interval '0',
    CASE WHEN r.replay_lsn < n.lsn THEN clock_timestamp() - r.reply_time END) END))::float8
    AS lag_seconds,
  max(pg_wal_lsn_diff(n.lsn, r.replay_lsn))::bigint AS lag_bytes
FROM pg_stat_replication AS r, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
  ELSE pg_current_wal_lsn() END AS lsn) AS n
GROUP BY r.application_name ORDER BY r.application_name

-- name: slots
-- params:
-- Replication slots, and the WAL that each makes the server keep.
SELECT r.slot_name::text AS name, r.active AS is_active,
  greatest(coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_lsn() END, r.restart_lsn), 0), 0)::bigint AS retained_bytes
FROM pg_replication_slots AS r ORDER BY r.slot_name
