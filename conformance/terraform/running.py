"""Runs Terraform in a role: apply, plan, update, import, destroy, of twelve resources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import botocore.session  # type: ignore[import-untyped]

from conformance.serving import Endpoint

MIRROR = "TERRAFORM_PROVIDER_MIRROR"
_SOURCE = Path(__file__).resolve().parent / "main.tf"
_SECONDS = 600
# Of a subscription the provider's import leaves two arguments out, against AWS as well.
_IMPORTED = (
    "aws_sqs_queue.orders",
    "aws_sqs_queue_policy.orders",
    "aws_sns_topic.news",
    "aws_scheduler_schedule.daily",
)
_ARGUMENTS = ["-no-color", "-input=false"]


def run(endpoint: Endpoint) -> int:
    """Run all steps; return the number of failed ones, at most one. Prints each."""
    terraform = shutil.which("terraform")
    mirror = os.environ.get(MIRROR)
    if terraform is None or not mirror:
        why = "no terraform on the PATH" if terraform is None else f"{MIRROR} names no folder"
        print(f"terraform      skipped: {why}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return _Run(terraform, Path(folder), mirror, endpoint).all()


class _Run:
    """One run in a folder of its own."""

    def __init__(self, terraform: str, folder: Path, mirror: str, endpoint: Endpoint) -> None:
        self._terraform = terraform
        self._folder = folder
        shutil.copy(_SOURCE, folder)
        config = folder / "terraform.rc"
        config.write_text(
            f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n'
        )
        key, secret = endpoint.account()
        sts = botocore.session.get_session().create_client(
            "sts",
            "eu-central-1",
            endpoint_url=endpoint.url,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )
        account = sts.get_caller_identity()["Account"]
        self._environment = os.environ | {
            "TF_CLI_CONFIG_FILE": str(config),
            "TF_VAR_endpoint": endpoint.url,
            "TF_VAR_role": f"arn:aws:iam::{account}:role/deploy",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "CHECKPOINT_DISABLE": "1",
        }

    def all(self) -> int:
        """Run the steps until one fails."""
        steps: list[tuple[str, Callable[[], str]]] = [
            ("init", lambda: self._fault(["init"])),
            ("apply", lambda: self._apply("12 added, 0 changed, 0 destroyed")),
            ("plan without a difference", self._plan),
            ("update", self._update),
            ("plan after the update", self._plan),
            ("import", self._import),
            ("plan after the import", self._plan),
            ("destroy", lambda: self._fault(["destroy", "-auto-approve"])),
        ]
        for name, step in steps:
            fault = step()
            print(f"terraform      {name:52} {fault or 'ok'}", flush=True)
            if fault:
                return 1
        return 0

    def _update(self) -> str:
        self._environment["TF_VAR_maximum"] = "32768"
        return self._apply("0 added, 3 changed, 0 destroyed")

    def _import(self) -> str:
        """Forget some resources and import them, which changes nothing: a start of the provider
        takes seconds, so one command does it for all of them."""
        state = json.loads(self._ask(["state", "pull"]).stdout)
        ids = {
            f"{one['type']}.{one['name']}": one["instances"][0]["attributes"]["id"]
            for one in state["resources"]
        }
        blocks = [f'import {{\n  to = {name}\n  id = "{ids[name]}"\n}}\n' for name in _IMPORTED]
        (self._folder / "imports.tf").write_text("".join(blocks))
        fault = self._fault(["state", "rm", *_IMPORTED], arguments=[])
        return fault or self._apply("4 imported, 0 added, 0 changed, 0 destroyed")

    def _apply(self, counts: str) -> str:
        """Apply what differs; return the output if that is not so many resources."""
        return self._fault(["apply", "-auto-approve"], says=f"Resources: {counts}.")

    def _plan(self) -> str:
        """Return the output of a plan that is not empty."""
        return self._fault(["plan", "-detailed-exitcode"])

    def _fault(
        self, command: list[str], *, arguments: list[str] = _ARGUMENTS, says: str = ""
    ) -> str:
        """Run a command; return its output if it fails, or does not say this."""
        done = self._ask([*command, *arguments])
        is_right = done.returncode == 0 and says in done.stdout
        return "" if is_right else f"FAILED:\n{done.stdout}{done.stderr}"

    def _ask(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._terraform, *command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
