"""`python -m conformance.java_http`: Java's own HTTP client against a gateway, on SQS and `/v1`."""

from __future__ import annotations

import os
import sys

from conformance.java_http.running import run
from conformance.serving import DidNotStart, gateway


def main() -> int:
    """0 when all was answered as it should be, or there is no Java."""
    try:
        with gateway(os.environ) as endpoint:
            return run(endpoint)
    except DidNotStart as error:
        print(f"java_http: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
