"""Runs the cases through one client after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from conformance.casebook import Case
from conformance.cases import CASES
from conformance.driving import Broken, Client, Different, Driver, Refused
from conformance.environments import NotInstalled, Participant
from conformance.serving import Endpoint

STARTS = "the driver starts"

_printing = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """The result of one case; no fault means success."""

    fault: str
    seconds: float


@dataclass
class Run:
    """The outcomes of one client by case, or the reason why the client was skipped."""

    name: str
    version: str = ""
    protocol: str = ""
    skipped: str = ""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    actions: dict[str, set[str]] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, Outcome]:
        return {name: outcome for name, outcome in self.outcomes.items() if outcome.fault}


def _say(text: str) -> None:
    with _printing:
        print(text, flush=True)


def chosen(participant: Participant, pattern: str, *, verified: bool) -> Iterator[Case]:
    """The cases that this client runs."""
    for case in CASES:
        if (
            pattern in case.name
            and (case.brief or not participant.brief)
            and (verified or not case.signed)
        ):
            yield case


def run(
    participant: Participant, environ: Mapping[str, str], endpoint: Endpoint, pattern: str
) -> Run:
    """All cases through one client, in an account of its own."""
    done = Run(participant.name)
    try:
        command = participant.command()
    except NotInstalled as error:
        done.skipped = str(error)
        _say(f"{participant.name:14} skipped: {error}")
        return done
    try:
        driver = Driver(command, _environment(environ, endpoint))
    except (Broken, OSError) as error:
        done.outcomes[STARTS] = Outcome(str(error), 0.0)
        _say(f"{participant.name:14} FAILED to start: {error}")
        return done
    done.version, done.protocol = driver.client, driver.protocol
    client = Client(driver, endpoint)
    for case in chosen(participant, pattern, verified=endpoint.administrator is not None):
        outcome = _outcome(case, client)
        done.outcomes[case.name] = outcome
        verdict = f"FAILED: {outcome.fault}" if outcome.fault else "ok"
        _say(f"{participant.name:14} {case.name:52} {outcome.seconds * 1000:6.0f} ms  {verdict}")
    done.actions = client.actions
    driver.close()
    return done


def _outcome(case: Case, client: Client) -> Outcome:
    started = perf_counter()
    fault = ""
    try:
        case.run(client)
    except (Different, Refused, Broken) as error:
        fault = str(error)
    except (KeyError, ValueError, TypeError) as error:
        # An answer without the expected members, or with more or fewer messages.
        fault = f"unexpected answer: {type(error).__name__}: {error}"
    return Outcome(fault, perf_counter() - started)


def _environment(environ: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    access_key, secret = endpoint.account()
    kept = {name: value for name, value in environ.items() if not name.startswith("AWS_")}
    return kept | {
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
