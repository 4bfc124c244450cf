# `make` lists the targets. Each sets up what it needs from nothing but Python 3.11+, once.

ARGS ?=
SEED ?=
STEPS ?=
MESSAGES ?=
N ?= 20
LOAD ?= 0
MINUTES ?= 60
VENV ?= .venv
PY := $(VENV)/bin/python
# Each worker takes a stretch of the tests, so that it starts few of the gateways that several share.
PARALLEL := -n auto --dist worksteal
# What depends on the packages that others may have in another version.
BOUND_TESTS := tests/protocol tests/operations tests/scheduler tests/tracing tests/cli/test_command.py \
	tests/faces/test_http.py tests/faces/test_http_edges.py tests/faces/test_pages.py \
	tests/faces/test_webhooks.py tests/faces/rest
# What dies, hangs or races on purpose, or starts gateways again and again, and random clients against a
# model.
FAULT_TESTS := tests/faults tests/simulation tests/seed/test_failure_rows.py tests/faces/test_publish_races.py \
	tests/operations/test_publishing_races.py tests/storage/test_fifo_audit.py \
	tests/storage/test_postgresql_tools.py tests/cli/test_embedded.py \
	tests/cli/test_database_tls.py tests/cli/test_exposure.py tests/cli/test_listening.py tests/cli/test_master_keys.py \
	tests/cli/test_operations_address.py tests/cli/test_pgbouncer.py tests/cli/test_root.py tests/cli/test_serving.py \
	tests/cli/test_first_key.py tests/cli/test_signing_keys.py tests/cli/test_templates.py tests/cli/test_tls.py \
	tests/seed_files/test_seeded_gateways.py tests/faces/channels/test_push_processes.py \
	tests/faces/channels/test_two_gateways.py tests/faces/rest/test_schedules_processes.py \
	tests/faces/test_forged_handles.py tests/faces/test_publish_processes.py tests/tracing/test_exporting.py \
	tests/tracing/test_metrics_pushed.py
# Each row of the documents that this grew from, most with a gateway of its own, and what every face
# promises, over all pairs of faces: make seeds runs them.
SEED_TESTS := tests/seed tests/faces/promises
# The CPU time of single turns of the loop, in milliseconds, which busy neighbours double: make fuzz has them.
TURN_TESTS := tests/faces/test_loop_turns.py \
	tests/faces/test_metrics_page.py::test_a_scrape_of_ten_thousand_queues_holds_nobody_up
# What starts a gateway as suites in Python and containers do: make testing-clients has them.
SUITE_TESTS := tests/cli/test_containers.py tests/cli/test_pytest_plugin.py
# They build wheels and install them, or test what is in deploy/: deploy-check runs them.
PACKAGE_TESTS := tests/cli/test_packages.py tests/deployment
# Where it is set, as in many images, each process compiles all that it imports, which takes longer
# than most tests: nothing that uv installs has been compiled yet.
unexport PYTHONDONTWRITEBYTECODE
test faults seeds testing-clients soak soak-faults fuzz mutate simulate conformance rust-check load-check deploy-check release-dry test-postgres test-spark soak-spark check-bounds: export TMPDIR := $(shell .ci/scratch)

.DEFAULT_GOAL := help
.PHONY: help serve test test-often check check-bounds format bench bench-held conformance rust-check sns-validator testing-clients browser-check simulate \
	faults failover seeds soak soak-faults fuzz mutate openapi-check load-check docs docs-check deploy-check release-dry test-postgres spark-zip check-spark test-spark soak-spark \
	bench-spark environments lock models clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/.ready-run ## Start the gateway with its own PostgreSQL (ARGS="--port 4566")
	@exec $(VENV)/bin/queuegate serve $(ARGS)

test: $(VENV)/.ready-dev ## Run the tests in a random order, or that of a SEED (ARGS="tests/faces -k batch"); check, faults, testing-clients and deploy-check have the others
	@exec $(PY) -m pytest $(PARALLEL) $(if $(SEED),--order-seed $(SEED)) --durations 50 --durations-min 1 $(or $(ARGS),--ignore tests/tidy $(patsubst %,--ignore %,$(FAULT_TESTS) $(SEED_TESTS) $(SUITE_TESTS) $(PACKAGE_TESTS)) $(patsubst %,--deselect %,$(TURN_TESTS)))

test-often: $(VENV)/.ready-dev ## Run make test N=20 times, LOAD=4 busy processes beside; say what failed how often
	@exec $(PY) -m tests.often --times $(N) --load $(LOAD) make test

check: $(VENV)/.ready-dev ## Format, lint, types and the tests of the code's own rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	cd queuegate/pytest_plugin && $(abspath $(VENV))/bin/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache/plugin --package queuegate_pytest
	$(PY) -m pytest -q tests/tidy

check-bounds: .venvs/oldest/.ready ## Run tests with the oldest packages that pyproject.toml allows, on Python 3.11
	@echo 'fastapi==0.115.*' | .venvs/uv/bin/uv pip compile --quiet - pyproject.toml >/dev/null
	@exec .venvs/oldest/bin/python -m pytest $(PARALLEL) $(or $(ARGS),$(BOUND_TESTS))

format: $(VENV)/.ready-dev ## Format the code and fix what ruff can fix
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/.ready-bench ## Measure against this machine, and beside moto (ARGS="--quick")
	@exec $(PY) -m tests.bench $(ARGS)

bench-held: $(VENV)/.ready-bench ## Measure queues beside a transaction, readers, slots and a standby that hold back vacuum, and pgmq (ARGS="--holder transaction --kind fifo")
	@exec $(PY) -m tests.bench.held $(ARGS)

conformance: $(VENV)/.ready-dev ## Run official AWS clients against a running gateway
	@exec $(PY) -m conformance $(ARGS)

rust-check: $(VENV)/.ready-dev ## Run the AWS SDK for Rust, compiled once in minutes, against a running gateway (skipped without cargo)
	@if command -v cargo >/dev/null; then exec $(PY) -m conformance --client rust $(ARGS); \
	else echo "make rust-check: skipped: there is no cargo on the PATH"; fi

sns-validator: $(VENV)/.ready-dev ## Let the npm package check our signatures (skipped without node)
	@exec $(PY) -m conformance.sns_validator

testing-clients: $(VENV)/.ready-dev ## Test what suites in Python, JavaScript and Java start gateways with (skipped without node or java)
	@$(PY) -m pytest -q $(PARALLEL) $(SUITE_TESTS)
	@exec $(PY) -m conformance.clients.testing

browser-check: $(VENV)/.ready-dev ## Ask from web pages in Chromium, with the SDK for JavaScript (skipped without it or node)
	@exec $(PY) -m conformance.browser $(ARGS)

simulate: $(VENV)/.ready-dev ## Random clients, crashes and clock jumps against a model (SEED=7 or 1-100, STEPS=m)
	@exec $(PY) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(ARGS)

faults: $(VENV)/.ready-dev ## kill -9 under load, lost connections, restarts, random clients; then count what is there
	@exec $(PY) -m pytest $(PARALLEL) $(FAULT_TESTS) $(ARGS)

failover: $(VENV)/.ready-dev ## PostgreSQL under Patroni fails in all ways under load (SEED=7, MESSAGES=5000000; skipped without patroni, etcd-server, postgresql)
	@exec $(PY) -m tests.failover $(if $(SEED),--seed $(SEED)) $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

seeds: $(VENV)/.ready-dev ## Each row of docs/seeds.md, and the promises of all faces
	@exec $(PY) -m pytest $(PARALLEL) $(SEED_TESTS) --ignore tests/seed/test_failure_rows.py $(ARGS)

soak-faults: $(VENV)/.ready-dev ## The same with long loads, again and again
	@QUEUEGATE_TEST_FAULTS=long exec $(PY) -m pytest tests/faults tests/storage/test_fifo_audit.py $(ARGS)

soak: $(VENV)/.ready-dev ## Load all faces for an hour and judge what rises, with charts in build/soak; then hold a transaction for half as long (MINUTES=5)
	@$(PY) -m tests.soak --minutes $(MINUTES) $(ARGS)
	@exec $(PY) -m tests.bench.held --holder transaction --minutes $$(($(MINUTES) / 2))

fuzz: $(VENV)/.ready-dev ## Draw requests and values anew for ten minutes (ARGS="--minutes 60", "--seed 7")
	@$(PY) -m pytest -q $(TURN_TESTS)
	@exec $(PY) -m tests.fuzz $(ARGS)

openapi-check: $(VENV)/.ready-run .venvs/openapi/.ready ## Test what faces say of themselves against what they do (ARGS=/api/openapi.json)
	@exec $(PY) -m conformance.openapi $(ARGS)

mutate: $(VENV)/.ready-dev .venvs/spark43/.ready ## Change one place after another in a copy, and print what no test notices (ARGS="--jobs 4 'a part of a name'")
	@exec $(PY) -m tests.mutations $(ARGS)

load-check: $(VENV)/.ready-dev ## Probe and load the simple queue with k6, which Go builds once (ARGS="--python", "--seconds 180")
	@exec $(PY) -m conformance.load $(ARGS)

docs: $(VENV)/.ready-run .venvs/docs/.ready ## Build the site of docs/, which gateways serve at /docs
	@$(PY) -m docs.site.openapi build/openapi
	@NO_MKDOCS_2_WARNING=1 exec .venvs/docs/bin/mkdocs build --strict --config-file docs/site/mkdocs.yml

docs-check: $(VENV)/.ready-run ## Paste the README and docs/ into a shell (ARGS=docs/tutorials/first-lake.md)
	@exec $(PY) -m conformance.pasting $(ARGS)

deploy-check: $(VENV)/.ready-dev .venvs/deploy/.ready ## Lint Dockerfile, compose.yaml and manifests; try the image's commands and what pip installs
	@$(PY) -m pytest -q $(PACKAGE_TESTS)
	@VENV=.venvs/deploy exec deploy/check

release-dry: $(VENV)/.ready-dev .venvs/docs/.ready .venvs/release/.ready ## Build a release of the last commit twice, describe and audit it, upgrade from the release before (ARGS="--builder ID")
	@exec $(PY) deploy/release.py $(ARGS)
	@QUEUEGATE_TEST_WHEELS=dist/packages exec $(PY) -m pytest -q tests/deployment/test_upgrade.py

test-postgres: $(VENV)/.ready-dev ## Test the storage on PostgreSQL 15 to 18, from npm (ARGS="--version 16 tests/storage/test_fifo.py")
	@exec $(PY) -m tests.postgres_versions $(ARGS)

spark-zip: $(VENV)/.ready-run ## Write the Spark connectors to dist/ as a zip for --py-files
	@exec $(PY) deploy/spark_zip.py

check-spark: .venvs/spark43/.ready ## Types of the Spark connectors and their tests
	.venvs/spark43/bin/mypy --config-file tests/spark/mypy.ini

test-spark: $(VENV)/.ready-run ## Test the Spark connectors with PySpark 4.3 (skipped without Java)
	@VENV=$(VENV) exec .ci/spark test $(ARGS)

soak-spark: $(VENV)/.ready-run ## The rest of it: PySpark 4.2, clusters, moto, Delta Lake, many kills
	@VENV=$(VENV) exec .ci/spark soak $(ARGS)

bench-spark: $(VENV)/.ready-run ## Measure the Spark connectors on this machine
	@VENV=$(VENV) exec .ci/spark bench $(ARGS)

environments: $(VENV)/.ready-dev .venvs/spark43/.ready ## What `make test` and `make test-spark` need

lock: ## Write requirements/*.txt anew from pyproject.toml, and say what the locked botocore adds
	@.ci/setup --uv && UV=.venvs/uv/bin/uv requirements/lock
	@exec $(MAKE) --no-print-directory models

models: $(VENV)/.ready-dev ## Print what botocore's service models have that we have not (ARGS="--data DIR")
	@exec $(PY) -m conformance.models $(ARGS)

clean: ## Delete what the targets made, the data of `make serve` excepted
	rm -rf $(VENV) .venvs build dist queuegate/_site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than its lock file when the environment holds what the lock file says.

$(VENV)/.ready-run: requirements/run.txt requirements/build.txt pyproject.toml
	@.ci/setup $(VENV) --project requirements/run.txt
	@touch $@

$(VENV)/.ready-dev: requirements/dev.txt requirements/build.txt pyproject.toml
	@.ci/setup $(VENV) --project requirements/dev.txt
	@touch $@ $(VENV)/.ready-run

$(VENV)/.ready-bench: requirements/bench.txt $(VENV)/.ready-dev
	@.ci/setup $(VENV) requirements/bench.txt
	@touch $@

.venvs/oldest/.ready: requirements/oldest.txt requirements/build.txt pyproject.toml
	@PYTHON=$${PYTHON:-python3.11} .ci/setup .venvs/oldest --project requirements/oldest.txt
	@touch $@

.venvs/docs/.ready: requirements/docs.txt
	@.ci/setup .venvs/docs requirements/docs.txt
	@touch $@

.venvs/deploy/.ready: requirements/deploy.txt
	@.ci/setup .venvs/deploy requirements/deploy.txt
	@touch $@

.venvs/release/.ready: requirements/release.txt
	@.ci/setup .venvs/release requirements/release.txt
	@touch $@

.venvs/spark43/.ready: requirements/spark43.txt
	@.ci/setup .venvs/spark43 requirements/spark43.txt
	@touch $@

.venvs/spark42/.ready: requirements/spark42.txt
	@.ci/setup .venvs/spark42 requirements/spark42.txt
	@touch $@

.venvs/openapi/.ready: requirements/openapi.txt
	@.ci/setup .venvs/openapi requirements/openapi.txt
	@touch $@
