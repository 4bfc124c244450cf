#!/bin/sh
# The entrypoint of the images, at the place where Testcontainers' modules for LocalStack look for
# one: /usr/local/bin/docker-entrypoint.sh. Without a command, arguments are options of `serve`.
case "${1--}" in
  -h | --help | --version) ;;
  -*) set -- serve "$@" ;;
esac
# A server that is replaced in tests keeps no data. Another directory than the image's is kept.
if [ -n "${QUEUEGATE_LIKE-}" ] && [ "${QUEUEGATE_DATA_DIR-}" = /var/lib/queuegate ]; then
  export QUEUEGATE_DATA_DIR=
fi
exec queuegate "$@"
