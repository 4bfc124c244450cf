"""The faces of a process, in the order in which they are asked: the one list of them.

Each has its name in QUEUEGATE_FACES (``gateway.configuration.values.FACE_NAMES``).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from queuegate.gateway.faces.aws.aws_face import AwsFace, is_link_of_sns
from queuegate.gateway.faces.face import Entrance, is_navigation
from queuegate.gateway.faces.switched_off import SwitchedOff
from queuegate.gateway.pages import paths

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.face import AsgiFace, Face
    from queuegate.gateway.metrics.scraping import Metrics

_log = logging.getLogger("queuegate.server")

_OPENED_AFTER_SECONDS = 2.0
_IMPORTED_LATER = (
    "queuegate.gateway.pages.routes",
    "queuegate.gateway.faces.rest.api",
    "queuegate.gateway.faces.simple.api",
    "queuegate.gateway.faces.channels.api",
    "queuegate.gateway.faces.logs.api",
    "queuegate.gateway.faces.text.face",
)
_CHANNELS = ("/v1/channels", "/v1/messages", "/v1/dead-letter", "/v1/metrics")


def entrances(aws: AwsFace, settings: Settings, metrics: Metrics) -> tuple[Entrance, ...]:
    """Pages for operators, faces below a prefix, and AWS, which has every other path.

    Who asks a face that is off is told so; the pages are always there.
    """
    engine, callers = aws.engine, aws.callers

    def make_pages() -> AsgiFace:
        from queuegate.gateway.pages.routes import pages

        return pages(engine, metrics, settings, callers)

    def make_rest() -> Face:
        from queuegate.gateway.faces.rest.api import rest_face

        return rest_face(engine, callers)

    def make_simple() -> Face:
        from queuegate.gateway.faces.simple.api import simple_face

        return simple_face(engine, callers)

    def make_channels() -> Face:
        from queuegate.gateway.faces.channels.api import channels_face

        return channels_face(engine, callers)

    def make_logs() -> Face:
        from queuegate.gateway.faces.logs.api import logs_face

        return logs_face(engine, callers)

    def make_text() -> Face:
        from queuegate.gateway.faces.text.face import TextFace

        return TextFace(engine, callers)

    page_entrance = Entrance(
        make_pages,
        prefixes=paths.PREFIXES,
        also=paths.is_page,
        label=paths.page_label,
        is_visit=is_navigation,
        is_operators=True,
    )
    faces = {
        # They share `/v1`: what channels and logs have there comes first.
        "channels": Entrance.below("/v1/channels", make_channels, roots=_CHANNELS),
        "log": Entrance.below("/v1/logs", make_logs, roots=("/v1/logs",)),
        "rest": Entrance.below("/v1", make_rest),
        "simple": Entrance.below("/api", make_simple),
        # Below it are URLs of queues.
        "text": Entrance.at("/queue", make_text),
        "aws": Entrance(lambda: aws, prefixes=("",), label=lambda _: "/", is_visit=is_link_of_sns),
    }
    for name, entrance in faces.items():
        if name not in settings.faces:
            entrance.face = SwitchedOff(name, aws)
    return page_entrance, *faces.values()


def import_all() -> None:
    """Import what else is imported when somebody first asks for it."""
    for name in _IMPORTED_LATER:
        importlib.import_module(name)


@contextlib.asynccontextmanager
async def opened_soon(faces: Iterable[Entrance]) -> AsyncIterator[None]:
    """Open the faces for clients meanwhile, once the process is up. One that is first asked for
    days later would be imported then, from files that an upgrade may have exchanged under us."""
    task = asyncio.create_task(_open(faces), name="faces")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _open(faces: Iterable[Entrance]) -> None:
    await asyncio.sleep(_OPENED_AFTER_SECONDS)
    for entrance in faces:
        # Probes open the pages.
        if not entrance.is_operators:
            await entrance.open()
    _log.debug("all faces are open")
