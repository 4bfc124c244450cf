"""Check the YAML blocks of the how-to pages: compose files and workflows against their schemas.

The schemas are those in the package check-jsonschema: compose-spec and SchemaStore's of GitHub
workflows, both Apache 2.0. Other blocks have to be YAML.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml  # type: ignore[import-untyped]

_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SCHEMAS = {"jobs": "vendor.github-workflows", "services": "vendor.compose-spec"}
"""The schema of a block by a key at its top."""


def main() -> int:
    """Check all blocks; return 1 if one is wrong."""
    checker = Path(sys.executable).parent / "check-jsonschema"
    files: dict[str, list[str]] = {schema: [] for schema in _SCHEMAS.values()}
    with tempfile.TemporaryDirectory() as folder:
        for page in sorted(Path("docs/how-to").glob("*.md")):
            for number, block in enumerate(_BLOCK.findall(page.read_text("utf-8")), 1):
                place = Path(folder) / f"{page.stem}-{number}.yaml"
                place.write_text(block, "utf-8")
                content = next(iter(yaml.safe_load_all(block)))
                keys = [key for key in _SCHEMAS if key in content]
                print(f"{page}: block {number}, {keys[0] if keys else 'read as YAML only'}")
                if keys:
                    files[_SCHEMAS[keys[0]]].append(str(place))
        codes = [
            subprocess.run([checker, "--builtin-schema", schema, *some], check=False).returncode
            for schema, some in files.items()
            if some
        ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
