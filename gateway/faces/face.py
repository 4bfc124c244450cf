"""What a face is to the front door: which requests are its, and how it is asked.

``gateway.process.faces`` lists the faces of a process; ``gateway.http.app`` has the one loop over
them. Neither knows what a face answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

from queuegate.gateway.faces.requests import Asgi, Request, Response, Scope
from queuegate.storage.errors import Rejected, Unavailable


class Work(Protocol):
    """What a face does for a request."""

    def cancel(self) -> object:
        """Nobody waits for it any more."""


class Face(Protocol):
    """Answers requests. It is told of one when the head is read, and asked when all of it is."""

    def most_bytes(self, request: Request) -> int | None:
        """How long a body this request may have, by its head; None: as long as the gateway takes
        any."""

    def may_wait(self, request: Request) -> bool:
        """Whether the answer may wait for something: then its client is watched, which costs two
        tasks, and the work is cancelled when it goes away."""

    def claimed(self, _request: Request) -> str | None:
        """Return the account that a head claims, before the body is read and the claim verified;
        empty: none. None: this head cannot authenticate, so ``answer`` refuses it with whatever
        body."""
        return ""

    async def answer(self, request: Request) -> Response:
        """The response to any request: whatever goes wrong has one, too."""

    def begin(self, _request: Request, _done: Callable[[Response], None]) -> Work | bool:
        """Do what ``answer`` does without a task, which costs as much as a short request: where no
        more than a lane has to answer first. ``done`` gets the response, from within this call or
        later; what may wait can be given up. False: nothing was done, ``answer`` has to be asked.
        """
        return False

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end: it is too large, there is
        no room for it, or it may not come from where it does."""


class AsgiFace(NamedTuple):
    """A face that reads requests and writes answers itself: of Starlette, for example."""

    app: Asgi
    """Gets requests, and WebSockets where uvicorn hands them on. What it reads counts like
    everybody's bodies: where these are refused, its ``receive`` raises the refusal."""
    turned_away: Callable[[Request, Rejected | Unavailable], Response]


DOCUMENT = "/openapi.json"
"""Below the prefix of a face: what describes it."""

IsVisit = Callable[[Scope], bool]


def nobody_visits(_: Scope) -> bool:
    """No page of another site may lead here."""
    return False


def is_navigation(scope: Scope) -> bool:
    """Whether a browser says that somebody follows a link: it shows what is answered."""
    found: dict[bytes, bytes] = dict(scope["headers"])
    return (
        scope["method"] in ("GET", "HEAD")
        and found.get(b"sec-fetch-mode") == b"navigate"
        and found.get(b"sec-fetch-dest", b"document") == b"document"
    )


def _document_below(path: str) -> IsVisit:
    document = (path + DOCUMENT).encode()
    return lambda scope: scope["raw_path"] == document and is_navigation(scope)


_making = threading.Lock()
"""Faces are made one at a time, and each once: msgspec (0.22.0) shows a struct to other threads
while it still finds out what its fields are, and who decodes one then follows a null pointer."""


class Entrance:
    """A face, which requests are for it, and what these are counted as.

    The face is made in a thread, at the first of them or soon after the start: what it imports may
    take a tenth of a second, in which nobody else shall wait.
    """

    def __init__(
        self,
        make: Callable[[], Face | AsgiFace],
        *,
        prefixes: tuple[str, ...],
        also: Callable[[Scope], bool] | None = None,
        label: Callable[[str], str],
        is_visit: IsVisit = nobody_visits,
        is_operators: bool = False,
    ) -> None:
        self.face: Face | AsgiFace | None = None
        self._make = make
        self._prefixes = prefixes
        self._also = also
        self.label = label
        """From a path to what it is counted under where no response says it: one of a few."""
        self.is_visit = is_visit
        """Whether somebody follows a link, which may be of any site: to what only shows something,
        or to what changes nothing without the token in it."""
        self.is_operators = is_operators
        """Whether operators and their probes ask, not clients: that is not in the access log, and
        no request in flight, or a scrape would count itself."""

    @classmethod
    def below(cls, prefix: str, make: Callable[[], Face], *, roots: tuple[str, ...] = ()) -> Self:
        """The entrance of a face that has all below a prefix and describes it in a document, to
        which links may lead.

        ``roots``: it shares its prefix with others, and has these paths with all below them.
        """
        exact = frozenset(root.encode() for root in roots)
        return cls(
            make,
            prefixes=tuple(f"{one}/" for one in (prefix, *roots)),
            also=lambda scope: scope["raw_path"] in exact,
            label=lambda _: f"{prefix}/",
            is_visit=_document_below(prefix),
        )

    @classmethod
    def at(cls, path: str, make: Callable[[], Face]) -> Self:
        """The same of a face that has this path, and below it the document alone."""
        exact = (path.encode(), (path + DOCUMENT).encode())
        return cls(
            make,
            prefixes=(),
            also=lambda scope: scope["raw_path"] in exact,
            label=lambda _: path,
            is_visit=_document_below(path),
        )

    def is_for(self, path: str, scope: Scope) -> bool:
        """Whether this face is asked. Paths are compared as they came: an encoded one is another,
        for us as for the rules of a proxy in front."""
        return path.startswith(self._prefixes) or (self._also is not None and self._also(scope))

    async def open(self) -> Face | AsgiFace:
        """The face."""
        if self.face is not None:
            return self.face
        return await asyncio.to_thread(self._made)

    def _made(self) -> Face | AsgiFace:
        with _making:
            made = self.face
            if made is None:
                made = self.face = self._make()
            return made
