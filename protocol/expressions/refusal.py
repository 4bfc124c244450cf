"""The one exception of this package."""


class Unparsable(ValueError):
    """What was written says no time that we understand.

    `str(error)` is for whoever wrote it: it names what was found and what is allowed.
    """


def shown(text: str, most: int = 60) -> str:
    """The text in quotes, cut after ``most`` characters, as refusals show it."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")
