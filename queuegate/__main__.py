"""The entry point of `python -m queuegate`."""

from __future__ import annotations

import sys

from queuegate.gateway import cli

if __name__ == "__main__":
    sys.exit(cli.main())
