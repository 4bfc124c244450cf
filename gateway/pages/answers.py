"""JSON responses of pages for operators and testers."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def json_answer(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response that ends with a newline, for terminals."""
    text = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(text, status, headers, media_type="application/json")
