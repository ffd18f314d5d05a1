# Every target sets up what it needs from a bare python3 (3.11 or newer, with venv).
PYTHON ?= python3
BIN := .venv/bin
CONTAINER ?= podman
.PHONY: dev test check format lint types imports bench soak failover docs typescript-types typescript-test samples-test \
  deploy-test cluster-test looks release image lock clean
.DEFAULT_GOAL := check
# Tests start hundreds of processes: modules are compiled once, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

# What the service needs to run, and what its tests and checks need besides.
INSTALL := $(BIN)/python scripts/install.py
LOCKS := requirements/runtime.lock requirements/build.lock
PROJECTS := sdk/pyproject.toml server/pyproject.toml
.venv: .venv/ready
.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "esim-dealer needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip .venv
	@touch $@
.venv/runtime: $(LOCKS) $(PROJECTS) | .venv/python
	@$(INSTALL) --require-hashes $(addprefix -r ,$(LOCKS)) --then --no-deps --no-build-isolation -e sdk -e server
	@touch $@
.venv/ready: requirements/test.lock .venv/runtime
	@$(INSTALL) --require-hashes -r requirements/test.lock
	@touch $@

# A new data folder begins with the orders of so many days.
HISTORY ?= 60
dev: .venv/runtime
	@$(BIN)/dealer-server dev --history $(HISTORY) $(if $(PORT),--port $(PORT)) $(if $(DATA),--data $(DATA))

# Tests wait more than they compute: two processes a core, each with a PostgreSQL of its own.
test: .venv
	$(BIN)/python -m pytest -n $$((2 * $$(getconf _NPROCESSORS_ONLN))) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

check: format lint types imports test

format: .venv
	$(BIN)/ruff format --check .
lint: .venv
	$(BIN)/ruff check .
types: .venv
	$(BIN)/pyright
imports: .venv
	$(BIN)/lint-imports

bench: .venv
	$(BIN)/python -m bench

soak: .venv
	$(BIN)/python -m pytest -m soak --timeout 0

# Every page of console, documentation and install page in Chromium: wide and on a phone, light and dark, with axe, by keys
# alone, and the console's beside the pictures that are kept. Skipped where there is no Chromium.
looks: .venv
	$(BIN)/python -m pytest -n 2 --dist loadfile -rs -m looks server/tests

# Faults of a Patroni cluster's leader while a dealer buys (deploy/patroni/README.md).
KILLS ?= 20
STOPS ?= 5
PARTITIONS ?= 5
SWITCHOVERS ?= 10
failover: .venv deploy/patroni/.venv/ready
	KILLS=$(KILLS) STOPS=$(STOPS) PARTITIONS=$(PARTITIONS) SWITCHOVERS=$(SWITCHOVERS) $(BIN)/python -m deploy.patroni
deploy/patroni/.venv/ready: deploy/patroni/requirements.lock
	@test -x deploy/patroni/.venv/bin/python || $(PYTHON) -m venv deploy/patroni/.venv
	deploy/patroni/.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# docs/reference.md, and the documentation as static files in site/: what the service has at /docs.
docs: .venv
	$(BIN)/python -m docs

# The TypeScript SDK and the samples in other languages: the service itself needs none of what these need.
TYPESCRIPT := sdk-typescript/node_modules/ready
$(TYPESCRIPT): sdk-typescript/package.json
	cd sdk-typescript && npm install --no-audit --no-fund --loglevel error
	@touch $@

typescript-types: .venv $(TYPESCRIPT)
	$(BIN)/python -m scripts.openapi | node sdk-typescript/scripts/generate.mjs

typescript-test: .venv $(TYPESCRIPT)
	$(BIN)/python -m scripts.openapi | node sdk-typescript/scripts/generate.mjs --check
	cd sdk-typescript && npm run build && npm test && npm run check
	$(BIN)/python -m pytest -n 0 -rs server/tests/sdk/test_typescript.py

# Runs every sample of examples/ whose language is installed here, and says which were skipped.
samples-test: .venv
	$(BIN)/python -m pytest -n 0 -rs -m samples server/tests/samples

# Starts proxies, Prometheus and other programs around the service; what is not installed is skipped, with a reason.
deploy-test: .venv
	$(BIN)/python -m pytest -m deploy -rs server/tests/deploy

# The tests of what dealers and operators do, on a cluster of Citus: a coordinator and two workers on this machine. Skipped
# where DEALER_CITUS names no PostgreSQL that has it (deploy/citus/build.sh).
CLUSTER_TESTS := $(addprefix server/tests/, cli/test_cluster.py faults/test_cluster_nodes.py notices \
  $(addprefix operations/, orders profiles recharges reports/test_report_sums.py reports/test_statements.py) \
  $(addprefix operations/test_, account.py money_codes.py money_story.py order.py order_batches.py profile_list.py \
  refund_races.py refunds.py refunds_before_delivery.py stock.py suspend.py usage.py) \
  $(addprefix fulfillment/test_, fulfillment.py life.py purchases.py remote_recharges.py sms_queue.py suspensions.py \
  voids.py) \
  $(addprefix webhooks/test_webhook_, deliver.py lanes.py resend.py) \
  $(addprefix console/, buying dealer_setup esims find forms overview refunds reports \
  $(addprefix catalogue/test_console_, packages.py price_lists.py) \
  $(addprefix test_console_, dealer.py operator.py refused.py suppliers.py users.py) test_order_notes.py))
cluster-test: .venv
	@$(if $(DEALER_CITUS),$(BIN)/python -m pytest --cluster -n 2 --dist loadfile -rs $(CLUSTER_TESTS),\
	  echo "skipped: DEALER_CITUS names no PostgreSQL with Citus; deploy/citus/build.sh builds one")

release: .venv
	$(BIN)/python scripts/release.py

image: VERSION = $(shell $(BIN)/python -c "import importlib.metadata as m; print(m.version('esim-dealer-server'))")
image: release
	$(CONTAINER) build -f deploy/container/Containerfile -t esim-dealer -t esim-dealer:$(VERSION) $(IMAGE_OPTIONS) .

# Pins every dependency with its hashes; run after changing a pyproject.toml. A version stays until it is changed here.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet \
  --no-emit-package esim-dealer --no-emit-package esim-dealer-server
lock: .venv
	$(COMPILE) $(PROJECTS) -o requirements/runtime.lock
	$(COMPILE) -c requirements/runtime.lock --extra traces --extra sentry $(PROJECTS) -o requirements/extras.lock
	$(COMPILE) -c requirements/runtime.lock requirements/build.in -o requirements/build.lock
	$(COMPILE) $(addprefix -c ,$(LOCKS)) -c requirements/extras.lock --extra test --extra check --extra mcp $(PROJECTS) requirements/build.in -o requirements/test.lock
	$(COMPILE) -c requirements/test.lock requirements/installer.in -o requirements/installer.lock

clean:
	rm -rf .venv dist
