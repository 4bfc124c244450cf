#!/bin/sh
# For /docker-entrypoint-initdb.d of a new primary: allow replication, and make the slot of a standby.
# The slot keeps nothing before the standby has used it.
set -eu
echo 'host replication all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
psql --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" -v ON_ERROR_STOP=1 <<'SQL'
SET client_min_messages = warning;
ALTER SYSTEM SET max_slot_wal_keep_size = '16GB';
SELECT pg_reload_conf();
SELECT pg_create_physical_replication_slot('standby');
SQL
