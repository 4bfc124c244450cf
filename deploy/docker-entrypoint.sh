#!/bin/sh
# The entrypoint of the images, at the place where Testcontainers' modules for LocalStack look for
# one: /usr/local/bin/docker-entrypoint.sh.
if [ "$#" -eq 0 ]; then
  set -- serve
fi
exec queuegate "$@"
