"""Check the Helm chart: lint it, render it with several values, and validate what it renders.

The schemas of Kubernetes are in the package kubernetes-validate, those of operators in
deploy/schemas. Helm is that of the PATH, or the pinned one, which Go builds once. `--write` renders
deploy/kubernetes/gateway.yaml anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

HELM_VERSION = "v3.19.5"
KUBERNETES_VERSION = "1.34"
ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/queuegate"
MANIFEST = ROOT / "deploy/kubernetes/gateway.yaml"
PLAIN = ("-f", str(MANIFEST.with_name("values.yaml")))
HEADER = "# Rendered from deploy/helm/queuegate by `deploy/check_chart.py --write`.\n"
SCHEMAS = {
    "PodMonitor": "pod-monitor",
    "PrometheusRule": "prometheus-rule",
    "ScaledObject": "scaled-object",
    "TriggerAuthentication": "trigger-authentication",
}
VARIANTS: dict[str, tuple[str, ...]] = {
    "plain": PLAIN,
    "default": (),
    "everything": (
        *("--set", "podMonitor.enabled=true,prometheusRule.enabled=true,autoscaling.enabled=true"),
        *("--set", "tls.secretName=tls,gateway.processes=2,gateway.maxBufferedBytes=268435456"),
        *("--set", "imagePullSecrets[0].name=registry,nodeSelector.pool=queues"),
        *("--set", "podMonitor.labels.release=prometheus,service.annotations.a=b"),
        *("--set", "networkPolicy.clients[0].podSelector.matchLabels.app=shop"),
        *("--set", "networkPolicy.database.to[0].ipBlock.cidr=10.0.0.0/8"),
        *("--set", "env[0].name=QUEUEGATE_BASE_URL,env[0].value=https://queues.example.com"),
        *("--set", "podAnnotations.owner=queues,affinity.nodeAffinity=null"),
    ),
    "unsigned": ("--set", "auth=presence,worker.enabled=false"),
}
REFUSED = (
    *("database.secretName=", "masterKey.secretName=", "auth=sigv5", "databse.secretName=other"),
    *("gateway.maxBufferedBytes=1000", "gateway.processes=0", "networkPolicy.monitoring=null"),
)
MIB = 1 << 20


def helm_program() -> str | None:
    """Return the path of Helm; None, with a printed reason, if there is none."""
    if found := shutil.which("helm"):
        return found
    folder = ROOT / ".venvs" / f"helm-{HELM_VERSION}"
    go = shutil.which("go")
    if not (folder / "helm").exists():
        if go is None:
            print("skipped: there is neither helm nor go on the PATH")
            return None
        print(f"building helm {HELM_VERSION} (once)", flush=True)
        command = [go, "install", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"]
        built = subprocess.run(command, env={**os.environ, "GOBIN": str(folder)}, check=False)
        if built.returncode:
            print("skipped: helm could not be built")
            return None
    return str(folder / "helm")


def rendered(helm: str, *values: str) -> subprocess.CompletedProcess[str]:
    """Render the chart."""
    command = [helm, "template", "queuegate", str(CHART), "--kube-version", KUBERNETES_VERSION]
    return subprocess.run([*command, *values], capture_output=True, text=True, check=False)


def faults_of(documents: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the chart promises and does not keep."""
    for document in documents:
        if document["kind"] == "Secret":
            yield "a Secret is in the chart"
        if document["kind"] == "PrometheusRule" and "127.0.0.1" in str(document["spec"]):
            yield "an alert links to the machine of its reader"
        for container in _containers(document):
            limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB
            variables = {one["name"]: one for one in container["env"]}
            if "valueFrom" not in variables["DATABASE_URL"]:
                yield f"{container['name']}: the database is no reference to a Secret"
            signs = variables["QUEUEGATE_AUTH"]["value"] == "sigv4"
            if signs and "valueFrom" not in variables.get("QUEUEGATE_MASTER_KEY", {}):
                yield f"{container['name']}: the master key is no reference to a Secret"
            if container["name"] == "gateway":
                budget = int(variables["QUEUEGATE_MAX_BUFFERED_BYTES"]["value"])
                if limit < int(container["args"][-1]) * (4 * budget + 128 * MIB):
                    yield "the memory limit does not fit the budget of bytes"


def _containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    template = document["spec"].get("template", {})
    found: list[dict[str, Any]] = template.get("spec", {}).get("containers", [])
    return found


def validate(documents: list[dict[str, Any]], folder: Path) -> bool:
    """Validate each document against the schema of its kind."""
    tools = Path(sys.executable).parent
    succeeded = True
    for number, document in enumerate(documents):
        file = folder / f"{number}-{document['kind']}.yaml"
        file.write_text(yaml.safe_dump(document))
        schema = SCHEMAS.get(document["kind"])
        command: list[str | Path] = [tools / "kubernetes-validate", "--strict", "--quiet"]
        if schema:
            path = ROOT / f"deploy/schemas/{schema}.json"
            command = [tools / "check-jsonschema", "-q", "--schemafile", path]
        succeeded &= subprocess.run([*command, file], check=False).returncode == 0
    return succeeded


def check(helm: str) -> bool:
    """Check the chart with all variants of values; print what is wrong."""
    command = [helm, "lint", "--strict", str(CHART)]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    succeeded = linted.returncode == 0
    if not succeeded:
        print(linted.stdout, linted.stderr)
    for name, values in VARIANTS.items():
        made = rendered(helm, *values)
        if made.returncode:
            print(f"{name}: {made.stderr}")
            succeeded = False
            continue
        documents = [one for one in yaml.safe_load_all(made.stdout) if one]
        faults = [*faults_of(documents)]
        print(f"{name}: {', '.join(one['kind'] for one in documents)}", *faults, sep="\n  ")
        with tempfile.TemporaryDirectory() as folder:
            succeeded &= validate(documents, Path(folder)) and not faults
    for empty in REFUSED:
        if not rendered(helm, "--set", empty).returncode:
            print(f"{empty} was taken")
            succeeded = False
    if MANIFEST.read_text() != HEADER + rendered(helm, *PLAIN).stdout:
        print(f"{MANIFEST} differs from the chart: run deploy/check_chart.py --write")
        succeeded = False
    return succeeded


def check_operators() -> bool:
    """Validate the manifests for the operators of Prometheus and KEDA."""
    files = [MANIFEST.with_name(name) for name in ("pod-monitor.yaml", "scaled-object.yaml")]
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    with tempfile.TemporaryDirectory() as folder:
        return validate(documents, Path(folder))


def main() -> int:
    """Check the chart, or write the manifest; return 1 if something is wrong."""
    if not check_operators():
        return 1
    helm = helm_program()
    if helm is None:
        return 0
    if sys.argv[1:] == ["--write"]:
        MANIFEST.write_text(HEADER + rendered(helm, *PLAIN).stdout)
        return 0
    return 0 if check(helm) else 1


if __name__ == "__main__":
    sys.exit(main())
