"""The packages of the wheel: the folders as they lie here, inside the package `queuegate`,
which has the Python client of logs as its own.

Everything else is in pyproject.toml, which can rename packages but not find those that it renames.
"""

import shutil

from setuptools import find_packages, setup

FOLDERS = ("gateway", "protocol", "scheduler", "storage")

# Whatever a build before left here would be in the wheel, too.
shutil.rmtree("build/lib", ignore_errors=True)

found = find_packages(include=[name for folder in FOLDERS for name in (folder, f"{folder}.*")])
setup(
    packages=["queuegate", "queuegate.log", *(f"queuegate.{name}" for name in found)],
    package_dir={f"queuegate.{folder}": folder for folder in FOLDERS},
)
