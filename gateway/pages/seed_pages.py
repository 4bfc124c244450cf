"""The page of seeds: POST applies one, GET returns the resources of the caller's account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from queuegate.gateway.faces.interface import Request as FaceRequest
from queuegate.gateway.pages.page_paths import SEED
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage.storage_errors import Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.operations.runtime.engine import Engine


def seed_route(engine: Engine, settings: Settings, callers: CallerAuthenticator) -> Route:
    """Return the route. A key that is not an administrator's is for its own account."""

    async def answer(request: Request) -> Response:
        asked: FaceRequest = request.scope[REQUEST]
        try:
            return await _answer(asked)
        except Rejected as refusal:
            asked.refusal = refusal
            return _json({"error": str(refusal)}, 403)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _json({"error": f"The body is not a seed: {error}."}, 400)
        except Unavailable as error:
            return _json({"error": str(error)}, 503)

    async def _answer(asked: FaceRequest) -> Response:
        # Faces, which a start does not need.
        from queuegate.gateway.seeding import seeds

        caller = callers.caller(asked, {}, asked.path)
        where = {"account": caller.account_id, "region": caller.region}
        if asked.method == "GET":
            found = await seeds.export_account(engine, caller.account_id, caller.region)
            return _json({**where, "resources": found})
        seed = msgspec.json.decode(asked.body or b"{}", type=seeds.Seed)
        others = {one.account_id for one in seed.resources} | {one[0] for one in seed.places}
        others.discard(caller.account_id)
        if others and caller.producer is not None and not caller.is_administrator:
            text = f"The key is of account {caller.account_id}, and the file is about {min(others)}"
            return _json({"error": f"{text}."}, 403)
        result = await seeds.apply_seed(
            settings,
            engine,
            seed,
            asked.links_url,
            is_administrator=caller.is_administrator,
        )
        return _json({**where, **msgspec.to_builtins(result)})

    return Route(SEED, answer, methods=["GET", "POST"])


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content) + b"\n", status, media_type="application/json")
