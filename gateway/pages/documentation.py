"""The documentation at /docs: the site that `make docs` builds, as files of the package."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

SITE = str(files("queuegate") / "_site")
_START = "index.html"
_NOT_BUILT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Queuegate: documentation</title>
<p>This checkout has no built documentation. Run <code>make docs</code>, then reload this page.
The same pages are Markdown files in the folder <code>docs/</code>.</p>
</html>
"""
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def documentation_routes(directory: str = SITE) -> list[Route]:
    """Return the routes of the site. Each request reads its file from the disk."""
    site = StaticFiles(directory=directory, check_dir=False)

    async def start(_: Request) -> Response:
        return RedirectResponse(f"/docs/{_START}", headers=_HEADERS)

    async def page(request: Request) -> Response:
        path = request.path_params["path"]
        try:
            answer = await site.get_response(path, request.scope)
        except (HTTPException, OSError, ValueError):
            # Older releases of Starlette raise the latter two for names that no file can have.
            if path == _START:
                return HTMLResponse(_NOT_BUILT, headers=_HEADERS)
            return PlainTextResponse("There is no such page. See /docs.\n", 404, _HEADERS)
        answer.headers.update(_HEADERS)
        return answer

    return [Route("/docs", start), Route("/docs/", start), Route("/docs/{path:path}", page)]
