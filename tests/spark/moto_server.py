"""Moto's server, in which the sends and deletes of a queue come one after the other.

On its own it builds a queue's list of messages anew for each delete: of two deletes at the same
moment one is undone, and a send in between is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

_ONE_AT_A_TIME = (".SendMessage", ".DeleteMessage")


def main() -> None:
    """Serve on a free port of 127.0.0.1, and print where."""
    moto = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def application(
        environment: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if any(one in environment.get("HTTP_X_AMZ_TARGET", "") for one in _ONE_AT_A_TIME):
            with lock:
                answer: Iterable[bytes] = moto(environment, start_response)
        else:
            answer = moto(environment, start_response)
        return answer

    run_simple("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
