"""Build a release from the last commit into dist/, twice, and describe it: `make release-dry`.

    dist/packages    sdists and wheels, for the package index
    dist/release     image context, Spark's zip, SBOM (CycloneDX), provenance (in-toto, SLSA v1)

Both builds have the same bytes, or this fails. The second one has another folder, another time,
zone and hash seed. Uncommitted changes are not part of a release.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
UV = ROOT / ".venvs/uv/bin/uv"
DISTRIBUTIONS = (".", "queuegate/pytest_plugin", "spark_connectors")
LOCKS = ("requirements/run.txt", "requirements/build.txt", "requirements/docs.txt")
"""Lock files of what runs, of what builds packages, and of what builds their documentation."""
_COPY = re.compile(r"^COPY (?!--from)((?:\\\n|.)*?) +[^\s\\]+$", re.MULTILINE)
_FROM = re.compile(r"^FROM (\S+:\S+)", re.MULTILINE)
_BUILDERS = ({"TZ": "UTC", "PYTHONHASHSEED": "1"}, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"})


def main() -> int:
    """Build and describe; return 1 if a dependency has a known vulnerability."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--builder", default="local", help="who builds, for the provenance")
    builder = parser.parse_args().builder
    if not (ROOT / ".git").exists():
        raise SystemExit("a release is built from a commit: this is no clone")
    if _git("status", "--porcelain", "--untracked-files=no"):
        print("note: uncommitted changes are not part of this build")
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (
            _build(Path(scratch, name), environment)
            for name, environment in zip(("a", "elsewhere"), _BUILDERS, strict=True)
        )
        compare(first, second)
        print(f"two builds of {len(first)} files have the same bytes")
    release = {n: b for n, b in first.items() if "context" in n or n.endswith(".zip")}
    _write(DIST / "packages", {n: b for n, b in first.items() if n not in release})
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    release[f"queuegate-{version}.cdx.json"] = _materials_listed()
    release["provenance.intoto.json"] = _provenance({**first, **release}, builder)
    _write(DIST / "release", release)
    return _audited()


def compare(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> None:
    """Exit with the names of files that differ or are in one build only."""
    names = first.keys() | second.keys()
    different = sorted(name for name in names if first.get(name) != second.get(name))
    if different:
        raise SystemExit(f"two builds differ: {', '.join(different)}")


def _build(tree: Path, environment: Mapping[str, str]) -> dict[str, bytes]:
    """Build all distributions and the image context in a copy of the commit."""
    epoch = int(_git("log", "-1", "--format=%ct"))
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-xp", "-C", tree], input=archive.stdout, check=True)
    context = _image_context(tree)
    made = {"queuegate-image-context.tar.gz": packed(context, epoch)}

    def run(*words: str | Path) -> None:
        more = {"SOURCE_DATE_EPOCH": str(epoch), "NO_MKDOCS_2_WARNING": "1", **environment}
        done = subprocess.run(
            words, cwd=tree, env={**os.environ, **more}, capture_output=True, text=True, umask=0o022
        )
        if done.returncode:
            raise SystemExit(f"{words} failed:\n{done.stdout}{done.stderr}")

    run(sys.executable, "-m", "docs.site.openapi", "build/openapi")
    site = ("--strict", "--quiet", "--config-file", "docs/site/mkdocs.yml")
    run(ROOT / ".venvs/docs/bin/mkdocs", "build", *site)
    pinned = ("--build-constraints", "requirements/build.txt", "--require-hashes")
    for folder in DISTRIBUTIONS:
        run(UV, "build", "--quiet", *pinned, "--out-dir", tree / "dist", folder)
    run(sys.executable, "deploy/spark_zip.py", "--directory", tree / "dist")
    for file in (tree / "dist").iterdir():
        if file.name.endswith(".tar.gz"):
            with tarfile.open(file) as found:
                members = {
                    member.name: (member.mode, _read(found, member))
                    for member in found
                    if member.isfile()
                }
            made[file.name] = packed(members, epoch)
        elif file.suffix in (".whl", ".zip"):
            made[file.name] = file.read_bytes()
    return made


def _image_context(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of what the Dockerfile copies, and of itself."""
    names = copied((tree / "Dockerfile").read_text())
    tops = [tree / name for name in ("Dockerfile", ".dockerignore", *names)]
    files = (file for top in tops for file in (top.rglob("*") if top.is_dir() else [top]))
    return {
        str(file.relative_to(tree)): (file.stat().st_mode, file.read_bytes())
        for file in files
        if file.is_file()
    }


def copied(dockerfile: str) -> list[str]:
    """Return the names of what a Dockerfile copies from its context."""
    return " ".join(_COPY.findall(dockerfile)).replace("\\\n", " ").split()


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def packed(files: Mapping[str, tuple[int, bytes]], epoch: int) -> bytes:
    """Return a .tar.gz without owners, with one time for all."""
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (mode, content) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), epoch
            entry.mode = 0o755 if mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in sorted(files.items()):
        (folder / name).write_bytes(content)
        print(f"{_sha256(content)}  {(folder / name).relative_to(ROOT)}")


def _materials_listed() -> bytes:
    """Return the SBOM of what runs, in CycloneDX's JSON."""
    tool = ROOT / ".venvs/release/bin/cyclonedx-py"
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON")
    words = [str(tool), "requirements", "requirements/run.txt", *options]
    # It misses relations between the packages, which a lock file does not have.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    made = subprocess.run(words, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    return made.stdout


def _provenance(files: Mapping[str, bytes], builder: str) -> bytes:
    """Return an in-toto statement: the files made, and what they were made of."""
    commit = _git("rev-parse", "HEAD")
    materials: list[dict[str, Any]] = [{"name": "source", "digest": {"gitCommit": commit}}]
    materials += [
        {"name": name, "digest": {"sha256": _sha256((ROOT / name).read_bytes())}} for name in LOCKS
    ]
    for image in sorted(set(_FROM.findall((ROOT / "Dockerfile").read_text()))):
        name, digest = {"name": f"docker.io/library/{image}"}, _digest_of(image)
        materials.append(name | ({"digest": {"sha256": digest}} if digest else {}))
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": _sha256(content)}}
            for name, content in sorted(files.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:queuegate:make-release-dry:1",
                "externalParameters": {"commit": commit},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    return json.dumps(statement, indent=1).encode() + b"\n"


def _digest_of(image: str) -> str:
    """Return the digest that the tag of a base image has now; empty, and say why, if unknown."""
    words = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    why = "there is no docker"
    if shutil.which("docker"):
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        found = re.fullmatch(r"sha256:([0-9a-f]{64})", done.stdout.strip())
        if found:
            print(f"base image {image}@sha256:{found[1]}")
            return found[1]
        why = _lines(done.stderr)[0]
    print(f"base image {image}: no digest: {why}")
    return ""


def _audited() -> int:
    """Print what pip-audit finds for the lock file; return 1 for known vulnerabilities."""
    options = ("--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json")
    words = [str(ROOT / ".venvs/release/bin/pip-audit"), *options, "-r", "requirements/run.txt"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    packages = json.loads(done.stdout)["dependencies"] if done.stdout else []
    skipped = [one["skip_reason"] for one in packages if "skip_reason" in one]
    if len(skipped) == len(packages):
        print(f"pip-audit: nothing could be audited: {[*skipped, *_lines(done.stderr)][0]}")
        return 0
    bad = [(one["name"], one["version"], v["id"]) for one in packages for v in one.get("vulns", ())]
    audited = len(packages) - len(skipped)
    print(f"pip-audit: {audited} of {len(packages)} packages audited, {len(bad)} vulnerabilities")
    for name, version, identifier in sorted(bad):
        print(f"  {name} {version}: {identifier}")
    for reason in skipped:
        print(f"  not audited: {reason}")
    return int(bool(bad))


def _lines(text: str) -> list[str]:
    return text.strip().splitlines() or ["no output"]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(*arguments: str) -> str:
    words = ["git", *arguments]
    return subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
