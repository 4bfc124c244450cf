"""`python -m conformance`: run the official clients and write conformance/report/clients.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from conformance import clients, models, presigned, reporting, serving
from conformance.cases import CASES
from conformance.java_http import running as java_http
from conformance.running import Run, run
from conformance.terraform import running as terraform
from queuegate.protocol.service_detection import SERVICES


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description="Run official AWS clients against a gateway, and write a report.",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="a running gateway on this machine that may reach it and lets in everybody; else one "
        "that verifies signatures is started",
    )
    names = [participant.name for participant in (*clients.ALL, *clients.NAMED)]
    parser.add_argument(
        "--client", action="append", choices=names, help="only this client (repeatable)"
    )
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases with this text")
    parser.add_argument("--list", action="store_true", help="list clients and cases, run nothing")
    return parser.parse_args()


def _verdict(runs: list[Run], whole: bool) -> int:
    failures = 0
    for done in runs:
        if done.skipped:
            print(f"{done.name}: skipped: {done.skipped}")
            continue
        passed = len(done.outcomes) - len(done.failed)
        print(f"{done.name} ({done.version}, {done.protocol}): {passed} of {len(done.outcomes)}")
        failures += len(done.failed)
        for name, service in SERVICES.items():
            missing = sorted(service.actions.keys() - done.actions.get(name, set()))
            if whole and missing:
                print(f"{done.name} never called {', '.join(missing)} of {name.upper()}")
                failures += 1
    if all(done.skipped or not done.outcomes for done in runs):
        print("no client ran: nothing is known")
        failures += 1
    return 1 if failures else 0


def _others(endpoint: serving.Endpoint) -> int:
    """Run the checks that use no SDK and return the number of failures."""
    wrong = terraform.run(endpoint)
    if endpoint.administrator is None:
        return wrong + java_http.run(endpoint.url)
    shown = endpoint.new_key(name="java-http")["key"]
    return wrong + java_http.run(endpoint.url, shown) + presigned.run(endpoint)


def main() -> int:
    """0 when every case of every client that could be had went well."""
    arguments = _arguments()
    known = (*clients.ALL, *clients.NAMED)
    wanted = [p for p in known if p.name in arguments.client] if arguments.client else clients.ALL
    if arguments.list:
        print("clients:", ", ".join(participant.name for participant in known))
        for case in CASES:
            print(f"  {case.name}{' (brief)' if case.brief else ''}")
        return 0
    started: contextlib.AbstractContextManager[serving.Endpoint] = (
        contextlib.nullcontext(serving.Endpoint(arguments.endpoint))
        if arguments.endpoint
        # AWS refuses a second purge, which an ephemeral gateway does not unless told to.
        else serving.verifying(os.environ, QUEUEGATE_AWS_COOLDOWNS="true")
    )
    try:
        with started as endpoint, ThreadPoolExecutor() as pool:
            print(f"official clients against {endpoint.url}")
            tasks = [pool.submit(run, p, os.environ, endpoint, arguments.case) for p in wanted]
            runs = [task.result() for task in tasks]
            failed = 0 if arguments.client or arguments.case else _others(endpoint)
    except serving.DidNotStart as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    print(f"\nreport: {reporting.write(runs)}")
    models.report()
    return _verdict(runs, whole=not arguments.case) or failed


if __name__ == "__main__":
    sys.exit(main())
