"""Write dist/queuegate-spark-connectors-VERSION.zip: the Spark connectors for ``--py-files``.

The same sources give the same bytes everywhere. Besides the modules it holds the packages by which
Spark finds the formats ``sqs`` and ``sns``, and metadata, so that the version can be asked for.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "spark_connectors"
# The earliest that a zip file can say.
NO_TIME = (1980, 1, 1, 0, 0, 0)
READABLE = 0o100644 << 16


def project() -> dict[str, Any]:
    """What pyproject.toml says of the distribution."""
    with (PACKAGE / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def contents(project: Mapping[str, Any]) -> dict[str, bytes]:
    """Name in the zip -> bytes: the modules where a wheel would have them."""
    found = {name: file.read_bytes() for name, file in _modules(project["tool"]["setuptools"])}
    version = project["project"]["version"]
    about = f"queuegate_spark-{version}.dist-info"
    fields = {
        "Metadata-Version": "2.4",
        "Name": project["project"]["name"],
        "Version": version,
        "License-Expression": project["project"]["license"],
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    found[f"{about}/METADATA"] = text.encode()
    found[f"{about}/licenses/LICENSE"] = (PACKAGE / "LICENSE").read_bytes()
    return found


def _modules(wheel: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    for package in wheel["packages"]:
        top, *rooms = package.split(".")
        for file in PACKAGE.joinpath(wheel["package-dir"][top], *rooms).glob("*.py"):
            yield "/".join([top, *rooms, file.name]), file


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
    about = project()
    target = directory / f"queuegate-spark-connectors-{about['project']['version']}.zip"
    write(target, contents(about))
    print(target)
    print(
        f"spark-submit --py-files {target} job.py    # or spark.addArtifacts(..., pyfile=True)\n"
        'Executors need besides: pyspark, pyarrow, "pandas<3", boto3; orjson makes them faster.',
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
