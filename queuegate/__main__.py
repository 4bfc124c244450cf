"""The `queuegate` command and `python -m queuegate`: lets this process find its own packages first.

Their names are words of every day (`gateway`, `storage`). So an installation has them inside this
package, where nobody else's are in the way of them, nor they in anybody's; a checkout has them
beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run one command; its exit code."""
    package = Path(__file__).parent
    installed = (package / "gateway").is_dir()
    sys.path.insert(0, str(package if installed else package.parent))
    from gateway import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
