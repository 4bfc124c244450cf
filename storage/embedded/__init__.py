"""The PostgreSQL that Queuegate starts itself if none is configured.

server            start, watch, restart and stop: ``EmbeddedPostgres``
configuration     settings for queues
data_directory    location of the data, locked by one gateway at a time
account, binaries the account and the programs of PostgreSQL
orphans           remains of a killed gateway
"""

from queuegate.storage.embedded.account import CannotStart
from queuegate.storage.embedded.server import EmbeddedPostgres

__all__ = ["CannotStart", "EmbeddedPostgres"]
