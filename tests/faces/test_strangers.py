"""Callers without a good key and its permission reach nothing where signatures are verified.

Each operation of each face gets one request; afterwards every table is compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import pytest

from queuegate.gateway.faces.channels import channel_push
from tests import databases
from tests.faces.clients import Sqs, new_account
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.everything import NOBODYS, PAGES, UnsignedRequest, make, requests, rows
from tests.faces.servers import Server
from tests.faces.signing import Signer, Verifying
from tests.waiting import until

_STRANGER = "444455556666"


class World(NamedTuple):
    """An account with one of everything, and whom it must be kept from."""

    gateway: Verifying
    account: str
    asked: list[UnsignedRequest]
    before: dict[str, list[dict[str, Any]]]
    signers: Mapping[str, Signer]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """It is made by a gateway that lets in everybody."""
    account, dsn = new_account(), databases.of_this_process().copy()
    folder = tmp_path_factory.mktemp("strangers")
    with Server(dsn=dsn) as server:
        made = make(server, account)
        with Sqs("json", server.url, account) as sqs:
            listed = made.members["sqs"]["ListMessageMoveTasks"]
            until(
                lambda: sqs.call("ListMessageMoveTasks", **listed)["Results"][0]["Status"],
                lambda status: status != "RUNNING",
            )
    nothing = folder / "nothing.json"
    nothing.write_text('{"Version": "2012-10-17", "Statement": []}')
    with Verifying(folder, dsn=dsn) as gateway:
        signers = {
            "disabled": gateway.signer(account, name="disabled"),
            "of another account": gateway.signer(_STRANGER),
            "without a right": gateway.signer(account, "--policy", str(nothing), name="nothing"),
        }
        gateway.keys("disable", str(signers["disabled"].key_id))
        until(lambda: signers["disabled"].sqs("ListQueues").status, lambda found: found == 403)
        late = signers["without a right"].other(service="sts")
        until(
            lambda: late.form("sts", Action="GetCallerIdentity").status, lambda found: found == 200
        )
        yield World(gateway, account, [*requests(made, gateway.url)], rows(dsn), signers)
    databases.of_this_process().drop(dsn)


SHORT: dict[str, str] = {}
LONG = {"Expect": "100-continue"}
"""Nothing with this is for the fast path, or for the short way of other faces."""


def answers(
    world: World,
    signer: Signer | None,
    leaves: Collection[str] = (),
    way: Mapping[str, str] = SHORT,
) -> Iterator[tuple[UnsignedRequest, Answer]]:
    """Send each request that is not left out, signed or not, and yield the answers."""
    with Connection(world.gateway.url) as connection:
        for asked in world.asked:
            if asked.operation in leaves:
                continue
            headers = asked.headers
            if signer is not None:
                own = signer.other(service=asked.service)
                headers = own.sign(asked.method, asked.target, headers, asked.body)
            headers = {"Host": connection.host, **headers, **way}
            connection.send(request_bytes(asked.method, asked.target, headers, asked.body))
            yield asked, connection.answer()


def is_public(asked: UnsignedRequest) -> bool:
    """Return True if every caller with a good key may use the operation."""
    return asked.operation.rpartition(":")[2] in NOBODYS


_PUSHED = {f"channels:{one.name}" for one in channel_push.endpoint}
"""Who may have them waits for what comes."""


@pytest.mark.parametrize("way", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("who", ["nobody", "disabled", "without a right"])
def test_nothing_is_reached_or_changed(world: World, who: str, way: Mapping[str, str]) -> None:
    signer, before = world.signers.get(who), rows(world.gateway.dsn)
    for asked, answer in answers(world, signer, way=way):
        is_known = signer is not None and who != "disabled"
        refusals = [401 if asked.operation.startswith("text:") and not is_known else 403]
        if asked.operation.startswith("sns:ConfirmSubscription ") and signer is None:
            # Who follows a link needs its token alone, and this one is none.
            refusals = [400]
        elif asked.operation == "sts:AssumeRoleWithWebIdentity" and (is_known or signer is None):
            # Nor is the token of an identity provider one, and no signature goes with it.
            refusals = [400]
        elif is_public(asked) and is_known:
            refusals = [200]
        assert answer.status in refusals, (asked, answer.text)
    after = rows(world.gateway.dsn)
    assert [name for name, found in after.items() if found != before[name]] == []


def test_a_stranger_reaches_its_own_account_alone(world: World) -> None:
    """It may make what it likes there, under the same names."""
    for asked, answer in answers(world, world.signers["of another account"], _PUSHED):
        assert answer.status < 500, asked
        if asked.target in PAGES.values():
            assert answer.status == 403, asked
        if answer.status < 300:
            told = answer.text
            if asked.service == "scheduler":
                # It may say where its schedules send: whether they may is asked when they do.
                told = told.replace(f"arn:aws:sqs:us-east-1:{world.account}:orders", "")
            assert world.account not in told, (asked, answer.text)
    _check_new_rows(world)


def _check_new_rows(world: World) -> None:
    """Nothing of the account has changed, and nothing new belongs to anything of it."""
    taken: dict[str, set[Any]] = {}
    for row in chain.from_iterable(world.before.values()):
        for name, value in row.items():
            if name.endswith("_id") and value != _STRANGER:
                taken.setdefault(name, set()).add(json.dumps(value))
    for name, found in rows(world.gateway.dsn).items():
        assert [row for row in world.before[name] if row not in found] == []
        for row in found:
            if row not in world.before[name]:
                theirs = {
                    column
                    for column, value in row.items()
                    if value is not None and json.dumps(value) in taken.get(column, ())
                }
                assert theirs == set(), (name, row)
