SELECT
  (SELECT sum(d.blks_hit + d.blks_read)::bigint FROM pg_stat_database AS d
   WHERE d.datname = current_database()) AS pages,
  (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c
   WHERE c.relkind = 'r' AND c.relnamespace IN (
     SELECT n.oid FROM pg_namespace AS n WHERE n.nspname IN ('queuegate', 'pgmq'))) AS size_bytes,
  (SELECT sum(t.n_dead_tup)::bigint FROM pg_stat_user_tables AS t) AS dead_rows,
  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS wal_bytes
