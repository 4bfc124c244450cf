"""The PostgreSQL that Queuegate starts itself when it is given none.

server            starts, watches, restarts and stops it: ``EmbeddedPostgres``
configuration     how it is configured for queues
data_directory    where its data lives, and that one gateway has it at a time
account, binaries which account it runs under, and where its programs are
orphans           what a gateway that was killed has left behind
"""

from queuegate.storage.embedded.account import CannotStart
from queuegate.storage.embedded.server import EmbeddedPostgres

__all__ = ["CannotStart", "EmbeddedPostgres"]
