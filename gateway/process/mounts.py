"""Mounts of a process, in the order of routing: the one list of faces.

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
from queuegate.gateway.pages import page_paths

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import AsgiFace, Face
    from queuegate.gateway.metrics.scraping import MetricsPage

_log = logging.getLogger("queuegate.server")

_OPENED_AFTER_SECONDS = 2.0
_IMPORTED_LATER = (
    "queuegate.gateway.pages.operator_pages",
    "queuegate.gateway.faces.rest.rest_face",
    "queuegate.gateway.faces.simple_face",
    "queuegate.gateway.faces.channels.channels_face",
    "queuegate.gateway.faces.logs.logs_face",
    "queuegate.gateway.faces.text_face",
)
_CHANNELS = ("/v1/channels", "/v1/messages", "/v1/dead-letter", "/v1/metrics")


def mounts_of(aws: AwsFace, settings: Settings, metrics: MetricsPage) -> tuple[Mount, ...]:
    """Return the mounts of operators' pages, of faces below a prefix, and of AWS, which has every
    other path.

    A face that is switched off answers with a refusal. The pages are always on.
    """
    engine, callers = aws.engine, aws.callers

    def make_pages() -> AsgiFace:
        from queuegate.gateway.pages.operator_pages import pages

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

    page_mount = Mount(
        make_pages,
        prefixes=page_paths.PREFIXES,
        also=page_paths.is_page,
        label=page_paths.page_label,
        may_navigate=is_navigation,
        is_operators=True,
    )
    faces = {
        # These faces share `/v1`: channels and logs come before REST.
        "channels": Mount.below("/v1/channels", make_channels, roots=_CHANNELS),
        "log": Mount.below("/v1/logs", make_logs, roots=("/v1/logs",)),
        "rest": Mount.below("/v1", make_rest),
        "simple": Mount.below("/api", make_simple),
        # Queue URLs are below this path.
        "text": Mount.at("/queue", make_text),
        "aws": Mount(lambda: aws, prefixes=("",), label=lambda _: "/", may_navigate=is_link_of_sns),
    }
    for name, mount in faces.items():
        if name not in settings.faces:
            mount.face = SwitchedOff(name, aws)
    return page_mount, *faces.values()


def import_all() -> None:
    """Import the modules that are otherwise imported at the first request."""
    for name in _IMPORTED_LATER:
        importlib.import_module(name)


@contextlib.asynccontextmanager
async def opened_soon(faces: Iterable[Mount]) -> AsyncIterator[None]:
    """Open the faces for clients shortly after the start.

    A face that is opened at its first request could import files that an upgrade has replaced.
    """
    task = asyncio.create_task(_open(faces), name="faces")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _open(faces: Iterable[Mount]) -> None:
    await asyncio.sleep(_OPENED_AFTER_SECONDS)
    for mount in faces:
        # Probes open the pages for operators.
        if not mount.is_operators:
            await mount.open()
    _log.debug("all faces are open")
