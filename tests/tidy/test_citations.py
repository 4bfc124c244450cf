"""Code and pages cite only what is in this repository: files, sections of files, and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from tests.tidy.pages import SECTION, anchors, sections
from tests.tidy.source import PACKAGES, ROOT, Source, product, suite

FOLDERS = (*PACKAGES, "conformance", "deploy", "docs", "tests")
ENDINGS = {".py", ".sql", ".md"}

# A path below docs/, and the sections behind it: "2.1", "2.1 and 2.4", "2.1, 2.4", "2.5 to 2.7".
_SECTIONS = r"((?:(?:,| and| to)? \d+\.\d+)*)"
_CITATION = re.compile(r"docs/([\w./-]+\.md)" + _SECTIONS)
_LINK = re.compile(r"\]\(([^()\s#:]*)(#[^()\s]*)?\)" + _SECTIONS)
# Where a citation goes on in the next line of a docstring or a comment.
_LINE_END = re.compile(r"\n\s*(?:#:?|--)?\s*")
# Papers that were on somebody's desk when the code was written; a reader does not have them.
_ELSEWHERE = re.compile(
    r"(?<![\w/])(?<!\]\()contract/\w|\bcontract \d\.\d|\bFACES\b(?! *[=:.\[(])"
    r"|\bthe\s+study\b|\bshared/|(?<![\w/])seeds/\w|\b(?:DESIGN|FACES|FIFO|SPARK|USERS|STYLE|ANCHORS|TOOLCHAIN)\.md"
)
_SEED = re.compile(r"\bthe seed\b")
# A file that a page names, maybe with a wildcard.
_NAMED = re.compile(r"`((?:" + "|".join(FOLDERS) + r")/[\w./*-]+\.(?:py|sql|md|toml))`")

# A dotted name of code: "module.function", "package.module.Class".
_DOTTED = re.compile(r"``?([a-z_]+(?:\.[A-Za-z_]\w*)+)(?:\(\))?``?")
_FILES = (".lock", ".py", ".toml")


# A migration that was applied is never changed, not even a comment: databases know its checksum.
_FIXED = "storage/migrations/"


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(path, text) of every file that may cite, but for this one, whose examples are wrong."""
    files = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        files += [file for file in (ROOT / folder).rglob("*.*") if file.suffix in ENDINGS]
    return tuple(
        (str(file.relative_to(ROOT)), file.read_text("utf-8"))
        for file in sorted(files)
        if file != Path(__file__).resolve() and _FIXED not in file.as_posix()
    )


def broken_citations(path: str, text: str) -> Iterator[str]:
    for found in _CITATION.finditer(_LINE_END.sub(" ", text)):
        # A link's own target is relative to its page; the text before it may say the same.
        yield from _missing(path, "docs/" + found[1], SECTION.findall(found[2]))


def broken_links(path: str, text: str) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", "", text)
    for found in _LINK.finditer(text):
        target, anchor = found[1], found[2]
        name = _joined(path, target) if target else path
        missing = [*_missing(path, name, SECTION.findall(found[3]))]
        yield from missing
        if anchor and not missing and anchor not in anchors(name):
            yield f"{path} links to {name}{anchor}: there is no such heading"


def _joined(path: str, target: str) -> str:
    parts: list[str] = [*PurePosixPath(path).parent.parts]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return target
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _missing(path: str, name: str, numbers: list[str]) -> Iterator[str]:
    if not (ROOT / name).exists():
        yield f"{path} cites {name}: there is no such file"
        return
    for number in numbers:
        if number not in sections(name):
            yield f"{path} cites {name} {number}: there is no such section"


def cited_elsewhere(path: str, text: str) -> Iterator[str]:
    for found in _ELSEWHERE.finditer(_LINE_END.sub(" ", text)):
        yield f"{path} cites {found.group()!r}, which is not in this repository"
    says_where = "docs/seeds.md" in text or path == "docs/seeds.md"
    if _SEED.search(_LINE_END.sub(" ", text)) and not says_where:
        yield f"{path} speaks of a seed and does not say where it is: docs/seeds.md"


def missing_files(path: str, text: str) -> Iterator[str]:
    for name in _NAMED.findall(text):
        if not any(ROOT.glob(name)):
            yield f"{path} names {name}: there is no such file"


@cache
def modules() -> dict[tuple[str, ...], str]:
    """The texts of the modules, by the parts of their names."""
    sources = (*product(), *suite())
    return {parts_of(source): source.text for source in sources}


def parts_of(source: Source) -> tuple[str, ...]:
    parts = source.path.with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def unknown_names(path: str, text: str) -> Iterator[str]:
    """Yield dotted names that begin like a module of ours and lead to nothing."""
    for name in _DOTTED.findall(text):
        parts = tuple(name.removeprefix("queuegate.").split("."))
        if name.endswith(_FILES) or name.startswith("spark."):
            continue
        ours = [module for module in modules() if parts[0] in module]
        if ours and not any(leads_to(parts, module) for module in ours):
            yield f"{path} names {name}: there is no such module or name"


def leads_to(parts: tuple[str, ...], module: tuple[str, ...]) -> bool:
    """Return True if the first parts are the end of the module's name and it has the next one."""
    text = modules()[module]
    return any(
        module[-length:] == parts[:length]
        and (length == len(parts) or re.search(rf"\b{parts[length]}\b", text) is not None)
        for length in range(1, len(parts) + 1)
    )


def test_each_dotted_name_leads_to_a_name() -> None:
    code = [(path, text) for path, text in texts() if not path.endswith(".md")]
    assert [line for path, text in code for line in unknown_names(path, text)] == []


def test_each_citation_leads_to_a_section() -> None:
    assert [line for path, text in texts() for line in broken_citations(path, text)] == []


def test_nothing_outside_the_repository_is_cited() -> None:
    assert [line for path, text in texts() for line in cited_elsewhere(path, text)] == []


def test_each_link_leads_to_a_file_and_a_heading() -> None:
    pages = [(path, text) for path, text in texts() if path.endswith(".md")]
    assert [line for path, text in pages for line in broken_links(path, text)] == []


def test_each_file_that_a_page_names_is_there() -> None:
    pages = [(path, text) for path, text in texts() if path.endswith(".md")]
    assert [line for path, text in pages for line in missing_files(path, text)] == []


def test_the_checks_can_fail() -> None:
    where = "gateway/planted.py"
    assert not [*broken_citations(where, '"""Sends (docs/contract/sqs.md 2.7 and 2.11)."""')]
    for cited in (
        "docs/contract/sqs.md 2.99",
        "docs/contract/sqs.md 2.1, 2.99",
        "docs/contract/sqs.md 2.5 to 2.99",
        "docs/contract/sqs.md\n    # 2.99",
        "docs/contract/sts.md",
    ):
        assert [*broken_citations(where, f"# Ids ({cited}).")], cited
    for cited in (
        "contract/sqs.md 2.1",
        "(contract 2.7)",
        "FACES says so",
        "DESIGN.md",
        "as the\n# study has it",
        "seeds/beyond-queue.txt",
        "the seed had 5",
    ):
        assert [*cited_elsewhere(where, f"# {cited}")], cited
    for named in ("``storage.lanes.Lame``", "`gateway.operations.gone.f`", "`lanes.vanished()`"):
        assert [*unknown_names(where, named)], named
    assert not [*unknown_names(where, "``storage.lanes.Lane``, `lanes.Lane`, `time.time()`")]
    assert not [*cited_elsewhere(where, "# The seed: docs/seeds.md 1.2; FACES = ('rest', 'aws')")]
    page = "docs/planted.md"
    assert not [*broken_links(page, "[SQS](contract/sqs.md) 2.7, [top](../CHANGELOG.md#changelog)")]
    assert [*broken_links(page, "[SQS](contract/nothing.md)")]
    assert [*broken_links(page, "[SQS](contract/sqs.md) 2.99")]
    assert [*broken_links(page, "[top](../CHANGELOG.md#no-such-heading)")]
    assert not [*missing_files(page, "`storage/lanes.py`, `tests/tidy/test_*.py`")]
    assert [*missing_files(page, "`storage/nothing.py`")]
