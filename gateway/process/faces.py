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
from queuegate.gateway.faces.interface import Mount, is_navigation
from queuegate.gateway.faces.switched_off import SwitchedOff
from queuegate.gateway.pages import paths

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import AsgiFace, Face
    from queuegate.gateway.metrics.scraping import Metrics

_log = logging.getLogger("queuegate.server")

_OPENED_AFTER_SECONDS = 2.0
_IMPORTED_LATER = (
    "queuegate.gateway.pages.routes",
    "queuegate.gateway.faces.rest.rest_face",
    "queuegate.gateway.faces.simple_face",
    "queuegate.gateway.faces.channels.channels_face",
    "queuegate.gateway.faces.logs.logs_face",
    "queuegate.gateway.faces.text_face",
)
_CHANNELS = ("/v1/channels", "/v1/messages", "/v1/dead-letter", "/v1/metrics")


def entrances(aws: AwsFace, settings: Settings, metrics: Metrics) -> tuple[Mount, ...]:
    """Pages for operators, faces below a prefix, and AWS, which has every other path.

    Who asks a face that is off is told so; the pages are always there.
    """
    engine, callers = aws.engine, aws.callers

    def make_pages() -> AsgiFace:
        from queuegate.gateway.pages.routes import pages

        return pages(engine, metrics, settings, callers)

    def make_rest() -> Face:
        from queuegate.gateway.faces.rest.rest_face import rest_face

        return rest_face(engine, callers)

    def make_simple() -> Face:
        from queuegate.gateway.faces.simple_face import simple_face

        return simple_face(engine, callers)

    def make_channels() -> Face:
        from queuegate.gateway.faces.channels.channels_face import channels_face

        return channels_face(engine, callers)

    def make_logs() -> Face:
        from queuegate.gateway.faces.logs.logs_face import logs_face

        return logs_face(engine, callers)

    def make_text() -> Face:
        from queuegate.gateway.faces.text_face import TextFace

        return TextFace(engine, callers)

    page_entrance = Mount(
        make_pages,
        prefixes=paths.PREFIXES,
        also=paths.is_page,
        label=paths.page_label,
        may_navigate=is_navigation,
        is_operators=True,
    )
    faces = {
        # They share `/v1`: what channels and logs have there comes first.
        "channels": Mount.below("/v1/channels", make_channels, roots=_CHANNELS),
        "log": Mount.below("/v1/logs", make_logs, roots=("/v1/logs",)),
        "rest": Mount.below("/v1", make_rest),
        "simple": Mount.below("/api", make_simple),
        # Below it are URLs of queues.
        "text": Mount.at("/queue", make_text),
        "aws": Mount(lambda: aws, prefixes=("",), label=lambda _: "/", may_navigate=is_link_of_sns),
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
async def opened_soon(faces: Iterable[Mount]) -> AsyncIterator[None]:
    """Open the faces for clients meanwhile, once the process is up. One that is first asked for
    days later would be imported then, from files that an upgrade may have exchanged under us."""
    task = asyncio.create_task(_open(faces), name="faces")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _open(faces: Iterable[Mount]) -> None:
    await asyncio.sleep(_OPENED_AFTER_SECONDS)
    for entrance in faces:
        # Probes open the pages.
        if not entrance.is_operators:
            await entrance.open()
    _log.debug("all faces are open")
