"""Write dist/queuegate-spark-connectors-VERSION.zip: the Spark connectors for ``--py-files``.

The same sources give the same bytes everywhere. Besides the modules it holds the packages by which
Spark finds the formats ``sqs`` and ``sns``, and metadata, so that the version can be asked for.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "spark_connectors"
# Here lie packages that must be at the top to be found.
DISCOVERY = PACKAGE / "discovery"
# The earliest that a zip file can say.
NO_TIME = (1980, 1, 1, 0, 0, 0)
READABLE = 0o100644 << 16


def project_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    return version


def contents(version: str) -> dict[str, bytes]:
    """Name in the zip -> bytes."""
    found = {str(name): file.read_bytes() for name, file in _modules()}
    about = f"queuegate-{version}.dist-info"
    fields = {
        "Metadata-Version": "2.4",
        "Name": "queuegate",
        "Version": version,
        "License-Expression": "Apache-2.0",
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    found[f"{about}/METADATA"] = text.encode()
    found[f"{about}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return found


def _modules() -> Iterator[tuple[Path, Path]]:
    for file in PACKAGE.rglob("*.py"):
        top = DISCOVERY if file.is_relative_to(DISCOVERY) else ROOT
        yield file.relative_to(top), file


def write(target: Path, files: dict[str, bytes]) -> None:
    """Write the zip, or leave what was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    # Not compressed: zlib's output differs between its versions, and this is small.
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, NO_TIME)
            entry.create_system = 3
            entry.external_attr = READABLE
            archive.writestr(entry, files[name])
    unfinished.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="write it here")
    directory = parser.parse_args().directory
    version = project_version()
    target = directory / f"queuegate-spark-connectors-{version}.zip"
    write(target, contents(version))
    print(target)
    print(
        f"spark-submit --py-files {target} job.py    # or spark.addArtifacts(..., pyfile=True)\n"
        'Executors need besides: pyspark, pyarrow, "pandas<3", boto3; orjson makes them faster.',
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
