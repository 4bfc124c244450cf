#!/bin/sh
# A standby of the server that PRIMARY names, with the slot `standby`: copied once, streaming from then on.
set -eu
if [ ! -d "$PGDATA" ]; then
  # A copy that was interrupted is made anew.
  rm -rf "$PGDATA.new"
  mkdir -p "$(dirname "$PGDATA")"
  pg_basebackup --dbname="$PRIMARY" --pgdata="$PGDATA.new" --slot=standby --checkpoint=fast \
    --write-recovery-conf
  mv "$PGDATA.new" "$PGDATA"
fi
exec postgres "$@"
