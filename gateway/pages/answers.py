"""What pages for operators and testers answer: JSON, a line of its own."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def json_answer(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """An answer in JSON that ends with a newline, for terminals."""
    text = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(text, status, headers, media_type="application/json")
