"""The page of seeds: POST applies one, GET returns the resources of the caller's account."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Struct

from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import about, example
from queuegate.gateway.pages.admin_endpoints import AccountId, AdminCall, AdminRefused
from queuegate.gateway.seeding import seeds
from queuegate.gateway.seeding.resource_kinds import SeedResource
from queuegate.storage.storage_errors import Rejected

_RESOURCES = {
    "resources": [
        {"kind": "queue", "account_id": "111122223333", "region": "us-east-1", "name": "orders"}
    ]
}
_APPLIED: dict[str, Any] = {"changes": ["Created the queue orders."], "faults": [], "secrets": {}}
_Region = Annotated[str, example("us-east-1")]


class SeedBody(seeds.Seed, forbid_unknown_fields=True):
    """Resources to create and change, in one transaction."""


class ExportedSeed(Struct):
    """The resources of an account, in the form of a seed."""

    account: AccountId
    region: _Region
    resources: list[SeedResource]


class AppliedSeed(Struct):
    """The outcome. With faults, nothing was changed."""

    account: AccountId
    region: _Region
    changes: Annotated[list[str], about("A line for each changed resource.")]
    faults: list[seeds.SeedFault]
    secrets: Annotated[dict[int, str], about("Secrets of new keys, by index of their resources.")]


endpoint = Endpoints("seed")


@endpoint("GET /_admin/seed", "", refusals=(), shows={200: _RESOURCES})
async def export_seed(call: AdminCall) -> Answer[ExportedSeed]:
    """Export an account. Returns the resources of the caller's account in its region, without
    messages and secrets. Returns 200: The resources."""
    caller = call.caller
    found = await seeds.export_account(call.engine, caller.account_id, caller.region)
    return Answer(200, ExportedSeed(caller.account_id, caller.region, found))


@endpoint(
    "POST /_admin/seed",
    "",
    refusals=(),
    body=SeedBody,
    example=_RESOURCES,
    shows={200: _APPLIED},
)
async def apply_seed(call: AdminCall) -> Answer[AppliedSeed]:
    """Apply a seed. Creates and changes what differs from it. A key that is not an administrator's
    is for its own account. Returns 200: The outcome."""
    caller = call.caller
    try:
        seed = msgspec.json.decode(call.request.body or b"{}", type=SeedBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AdminRefused(400, f"The body is not a seed: {error}.") from None
    others = {one.account_id for one in seed.resources} | {one[0] for one in seed.places}
    others.discard(caller.account_id)
    if others and caller.producer is not None and not caller.is_administrator:
        text = f"The key is of account {caller.account_id}, and the file is about {min(others)}."
        raise AdminRefused(403, text)
    try:
        result = await seeds.apply_seed(
            call.settings,
            call.engine,
            seed,
            call.request.links_url,
            is_administrator=caller.is_administrator,
        )
    except Rejected as refusal:
        raise AdminRefused(403, str(refusal)) from None
    members: dict[str, Any] = {name: getattr(result, name) for name in result.__struct_fields__}
    return Answer(200, AppliedSeed(caller.account_id, caller.region, **members))
