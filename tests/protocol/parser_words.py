"""What orjson says of a text that is no JSON, as refusals repeat it: releases differ in that."""

from __future__ import annotations

import orjson


def _complaint() -> str:
    try:
        orjson.loads("wrong")
    except orjson.JSONDecodeError as error:
        return error.msg
    raise AssertionError


NOT_JSON = _complaint()
