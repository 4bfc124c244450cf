"""`python -m conformance.pasting [PAGE ...]`: paste pages into shells; 1 if one does not hold.

Each page has shells and a home of its own, whose port and folders are not those of this machine's
gateway. `make test` stands in the README, too, and is not pasted: it is a step of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic

from conformance.pasting.pages import Block, blocks_of
from tests.ports import reserved_port

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
FOLDERS = ("tutorials", "how-to", "reference", "explanation")
ON_REQUEST = {"docs/tutorials/first-lake.md"}
"""Spark is several hundred megabytes, so this page is pasted only if it is named."""
TOOLS = {
    "docs/how-to/test-go.md": "go",
    "docs/how-to/test-java.md": "mvn",
    "docs/how-to/test-node.md": "npm",
}
"""Pages that are skipped where their tool is not on the PATH."""
_OF_THIS_MACHINE = (
    "PIP_",
    "UV_",
    "GO",
    "MAVEN_",
    "NPM_CONFIG_",
    "npm_config_",
    "NODE_EXTRA_CA_CERTS",
    "SSL_",
    "REQUESTS_",
    "CURL_",
    "HTTP_",
    "HTTPS_",
    "NO_PROXY",
    "http_",
    "https_",
    "no_proxy",
    "LANG",
    "LC_",
    "TMPDIR",
)
"""Beginnings of the variables that a shell keeps: how packages are reached from here."""
_CONFIGURATION = (
    ("PIP_CONFIG_FILE", ".config/pip/pip.conf"),
    ("PIP_CONFIG_FILE", ".pip/pip.conf"),
    ("NPM_CONFIG_USERCONFIG", ".npmrc"),
    ("GOENV", ".config/go/env"),
    ("GOMODCACHE", "go/pkg/mod"),
    ("GOCACHE", ".cache/go-build"),
)
"""Files and caches below a home, and the variables that name them."""
_PORTS = ("9324", "9325")
_SAME_PORT = "4566"
"""Of gateways in place of LocalStack, which a page starts alone."""
_PATIENCE_SECONDS = 300.0


class Broken(Exception):
    """A page does not hold what it says; the text tells where and how."""


def _environment(home: Path, port: str, *, activated: bool) -> dict[str, str]:
    """Of somebody who has Python and the checkout, and nothing else."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_OF_THIS_MACHINE)}
    # Installers would look for their configuration below the home that the shell has not.
    for name, place in _CONFIGURATION:
        if (Path.home() / place).exists():
            kept.setdefault(name, str(Path.home() / place))
    if (Path.home() / ".m2").exists():
        kept.setdefault("MAVEN_OPTS", f"-Dmaven.repo.local={Path.home()}/.m2/repository")
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if "venv" not in part
    )
    if activated:
        path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{path}"
    return kept | {
        "HOME": str(home),
        "PATH": path,
        "QUEUEGATE_PORT": port,
        "QUEUEGATE_DATA_DIR": str(home / "data"),
    }


class _Shell:
    """A bash that stays, so that what a block sets is there for the next."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._paste("shopt -s expand_aliases; failed=0; trap 'failed=1' ERR")

    def _paste(self, text: str) -> str:
        """Paste the text and return its output until the end."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{text}\necho; echo pasted $failed; failed=0\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith("pasted "):
                break
            lines.append(line)
        else:
            raise Broken("the shell ended:\n" + "".join(lines))
        printed = "".join(lines).removesuffix("\n")
        if line != "pasted 0\n" and text[:5] != "shopt":
            raise Broken(f"a command failed:\n{printed}")
        return printed

    def paste(self, block: Block) -> str:
        return self._paste(block.script)

    def close(self) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait(_PATIENCE_SECONDS)


@contextlib.contextmanager
def _served(block: Block, environment: dict[str, str]) -> Iterator[None]:
    """In a terminal of its own, from when it is ready to the end of the page."""
    last = f"{block.last_line}\n"
    if "--like" in last:
        # A directory would make it keep its data, as a volume does.
        environment = {name: environment[name] for name in environment if "_DIR" not in name}
    server = subprocess.Popen(
        ["bash", "-c", f"{block.text.removesuffix(last)}exec {last}"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        lines: list[str] = []
        for line in server.stdout:
            lines.append(line)
            if line.startswith("  stop"):
                break
        else:
            raise Broken("it ended:\n" + "".join(lines))
        # What it logs from now on nobody waits for, but it must not wait for us.
        Thread(target=server.stdout.read, daemon=True).start()
        yield
    finally:
        server.terminate()
        server.wait(_PATIENCE_SECONDS)


def paste(page: Path, section: str = "") -> int:
    """Paste all blocks of a page, or of a section of it; how many there were. Raises Broken at the
    first that fails."""
    found = blocks_of(page, section)
    blocks = [block for block in found if block.text.split()[:2] != ["make", "test"]]
    before = _left_in_the_checkout()
    with contextlib.ExitStack() as held:
        home = Path(held.enter_context(tempfile.TemporaryDirectory()))
        # As root the database runs as somebody else.
        home.chmod(0o755)
        # A terminal shows no progress of curl's, a pipe does.
        (home / ".curlrc").write_text("silent\nshow-error\n")
        ports = {port: str(held.enter_context(reserved_port())) for port in _PORTS}
        environment = _environment(home, ports[_PORTS[0]], activated=page.name != "README.md")
        shell = _Shell(ROOT, environment)
        held.callback(shell.close)
        for block in blocks:
            print(f"{page.name}, line {block.line}", flush=True)
            ours = replace(block, text=_exchanged(block.text, ports))
            try:
                if ours.serves:
                    held.enter_context(_served(ours, environment))
                    continue
                theirs = {port: named for named, port in ports.items()}
                fault = ours.fault(_exchanged(shell.paste(ours), theirs))
            except Broken as error:
                fault = str(error)
            if fault is not None:
                raise Broken(f"{page.name}, line {block.line}: {fault}")
    left = _left_in_the_checkout() - before
    if left:
        raise Broken(f"{page.name} leaves in the checkout: {', '.join(sorted(left))}")
    return len(blocks)


def _exchanged(text: str, ports: dict[str, str]) -> str:
    """With other ports."""
    if _PORTS[0] in ports:
        text = text.replace(_SAME_PORT, ports[_PORTS[0]])
    for port, other in ports.items():
        text = text.replace(port, other)
    return text


def _left_in_the_checkout() -> set[str]:
    """Files that git neither has nor ignores; none where git knows nothing of the checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return set()
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines())


def _pages() -> list[str]:
    """Return the README and every page of docs/ that has something to paste."""
    found = [page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
    names = [str(page.relative_to(ROOT)) for page in found if blocks_of(page)]
    return ["README.md", *(name for name in names if name not in ON_REQUEST)]


def main() -> int:
    """Paste the pages that were named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.pasting",
        description="Paste the blocks of pages into a shell, and compare what they print.",
    )
    parser.add_argument(
        "page", nargs="*", help="a page, or PAGE#TITLE for a section of it; without any, all"
    )
    if shutil.which("curl") is None:
        print("make docs-check: skipped: there is no curl on the PATH")
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = [*pool.map(_holds, parser.parse_args().page or _pages())]
    return 0 if all(outcomes) else 1


def _holds(name: str) -> bool:
    """Paste a page, or PAGE#TITLE, and print the outcome."""
    began = monotonic()
    page, _, section = name.partition("#")
    if page in TOOLS and shutil.which(TOOLS[page]) is None:
        print(f"{name}: skipped: there is no {TOOLS[page]} on the PATH")
        return True
    try:
        count = paste(ROOT / page, section)
    except Broken as error:
        print(error, flush=True)
        return False
    print(f"{name}: {count} blocks hold, in {monotonic() - began:.1f} s", flush=True)
    return True


sys.exit(main())
