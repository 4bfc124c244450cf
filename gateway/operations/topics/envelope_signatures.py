"""Envelopes of SNS lie in queues without their signatures: whoever shows one fills it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from queuegate.protocol import envelopes
from queuegate.storage.model import UNSIGNED, Archived, Browsed

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine

Kept = TypeVar("Kept", Archived, Browsed)


async def signed(engine: Engine, kept: list[Kept]) -> list[Kept]:
    """The messages with the signatures of envelopes filled in, as a receive does, off the event
    loop. The MD5 of such a body is not kept."""
    places = [place for place, one in enumerate(kept) if one.body_md5 == UNSIGNED]
    if not places:
        return kept
    items = [envelopes.to_sign(kept[place].body) for place in places]
    signatures = await engine.signer.sign_many(items)
    fingerprint = engine.signer.fingerprint
    kept = list(kept)
    for place, signature in zip(places, signatures, strict=True):
        body = envelopes.with_signature(kept[place].body, signature, fingerprint)
        kept[place] = kept[place]._replace(body=body, body_md5=None)
    return kept
