SELECT left(regexp_replace(s.query, '\s+', ' ', 'g'), 90) AS query, s.calls,
  (s.shared_blks_hit + s.shared_blks_read) / greatest(s.calls, 1) AS pages_each,
  round((s.total_exec_time / greatest(s.calls, 1))::numeric, 3)::float8 AS ms_each,
  round(s.max_exec_time::numeric, 1)::float8 AS most_ms
FROM pg_stat_statements AS s WHERE NOT s.toplevel OR s.toplevel
ORDER BY s.shared_blks_hit + s.shared_blks_read DESC LIMIT $1
