"""The faces of a process, in the order in which they are asked: the one list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.faces.face import Entrance
from gateway.pages import paths

if TYPE_CHECKING:
    from gateway.configuration.settings import Settings
    from gateway.faces.aws.face import AwsFace
    from gateway.faces.face import AsgiFace, Face
    from gateway.metrics.scraping import Metrics


def entrances(aws: AwsFace, settings: Settings, metrics: Metrics) -> tuple[Entrance, ...]:
    """Pages for operators, the native API, and AWS, which has every other path."""
    engine, callers = aws.engine, aws.callers

    def make_pages() -> AsgiFace:
        from gateway.pages.routes import pages

        return pages(engine, metrics, settings, callers)

    def make_rest() -> Face:
        from gateway.faces.rest.api import rest_face

        return rest_face(engine, callers)

    return (
        Entrance(
            make_pages,
            prefixes=paths.PREFIXES,
            paths=paths.PAGES,
            also=paths.is_front_page,
            label=paths.page_label,
            is_operators=True,
        ),
        Entrance(make_rest, prefixes=("/v1/",), label=lambda _: "/v1/"),
        Entrance(lambda: aws, prefixes=("",), label=lambda _: "/"),
    )
