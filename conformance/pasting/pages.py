"""A page as the blocks that a reader pastes, and what it says that they print."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

_BLOCK = re.compile(r'^```(\w+)(?: title="(~/[^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# Texts that tell of a refusal: curl ends well whatever the answer is.
_REFUSALS = ("Traceback", '"error"', "<Error", '"__type"')


@dataclass(frozen=True)
class Block:
    """A block to paste, the line of the page where it begins (from 1), and its expected output."""

    language: str
    text: str
    line: int
    printed: str | None = None
    """``…`` stands for anything within its line; None: the page does not say."""
    file: str | None = None
    """The file whose content the block is, which its title names."""

    @property
    def serves(self) -> bool:
        """Return True if the block runs until it is stopped and needs its own terminal."""
        return self.language == "sh" and self.last_line.startswith(
            ("make serve", "queuegate serve")
        )

    @property
    def last_line(self) -> str:
        """With what it ends."""
        return self.text.rstrip("\n").rpartition("\n")[2]

    @property
    def script(self) -> str:
        """For a shell."""
        if self.file is not None:
            folder = self.file.rpartition("/")[0]
            begin = f"mkdir -p {folder}; cat > {self.file} <<'END_OF_PASTED'"
            return f"{begin}\n{self.text}END_OF_PASTED\n"
        if self.language != "python":
            return self.text
        return f"python - <<'END_OF_PASTED'\n{self.text}END_OF_PASTED\n"

    def fault(self, printed: str) -> str | None:
        """Why what was printed is not what the page promises; None if it is."""
        if self.printed is None:
            found = [text for text in _REFUSALS if text in printed]
            return f"it was refused: {printed}" if found else None
        pattern = ".*?".join(map(re.escape, self.printed.strip().split("…")))
        if re.fullmatch(pattern, printed.strip()):
            return None
        return f"it printed\n{printed}\nwhere the page says\n{self.printed}"


def blocks_of(page: Path, section: str = "") -> list[Block]:
    """The blocks of a page, or of one section of it, in order; a ``text`` block is what the block
    before it prints."""
    text = page.read_text("utf-8")
    if section:
        before, heading, after = text.partition(f"\n## {section}\n")
        # Lines are counted from the start of the page.
        text = "\n" * before.count("\n") + heading + after.partition("\n## ")[0]
    blocks: list[Block] = []
    for found in _BLOCK.finditer(text):
        language, file, content = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if file is not None or language in ("sh", "python"):
            blocks.append(Block(language, content, line, file=file))
        elif language == "text" and blocks:
            last = blocks.pop()
            blocks.append(replace(last, printed=content))
    return blocks
