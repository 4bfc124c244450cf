"""Phone numbers (docs/contract/sns.md 3.9)."""

import re

_E164 = re.compile(r"\+?[1-9][0-9]{1,14}")


def canonical(text: str) -> str | None:
    """The number as E.164 writes it, with its plus sign; None when it is not one."""
    if _E164.fullmatch(text) is None:
        return None
    return text if text.startswith("+") else f"+{text}"
