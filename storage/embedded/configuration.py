"""Settings of the bundled PostgreSQL for queues.

The text is written to `queuegate.conf` in the data directory, outside of PostgreSQL's own files. It
is read after PostgreSQL's `postgresql.conf` and before `postgresql.auto.conf`: ALTER SYSTEM
overrides it.
"""

from __future__ import annotations

_ALWAYS = """\
# Written at every start. Your own settings: ALTER SYSTEM SET ..., which is read after this file.
include = 'pgdata/postgresql.conf'
shared_buffers = 128MB
huge_pages = off
jit = off
# Reads come from memory: three helper processes for them would be idle.
io_method = sync
max_worker_processes = 1
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
max_logical_replication_workers = 0
# Idle memory: all of this is touched at the start, and none of it is needed. A flush of the hot
# path rarely exceeds the WAL buffers, and nothing here is SERIALIZABLE.
wal_buffers = 1MB
max_locks_per_transaction = 32
max_pred_locks_per_transaction = 10
serializable_buffers = 128kB
commit_timestamp_buffers = 128kB
subtransaction_buffers = 128kB
wal_level = minimal
max_wal_senders = 0
wal_compression = off
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
# Queues are churn: dead rows must go as fast as they come.
autovacuum_naptime = 5s
autovacuum_max_workers = 2
autovacuum_worker_slots = 3
autovacuum_vacuum_cost_delay = 1ms
autovacuum_vacuum_cost_limit = 10000
random_page_cost = 1.1
update_process_title = off
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
log_autovacuum_min_duration = -1
log_line_prefix = '%m [%p] '
"""

_EPHEMERAL = """\
fsync = off
full_page_writes = off
synchronous_commit = off
"""


# Access rules if other users may reach the socket, too (superuser.py).
ACCESS = "local all all scram-sha-256\n"


def configuration(max_connections: int, wal_bytes: int, *, ephemeral: bool) -> str:
    """Return the configuration file for this number of connections and this size of WAL between two
    checkpoints."""
    wal_mb = wal_bytes >> 20
    text = _ALWAYS + f"max_connections = {max_connections}\n"
    text += f"max_wal_size = {wal_mb}MB\nmin_wal_size = {min(160, wal_mb // 2)}MB\n"
    return text + _EPHEMERAL if ephemeral else text
