# Every target sets up what it needs from a bare python3 (3.11 or newer, with venv).
PYTHON ?= python3
BIN := .venv/bin
.PHONY: dev test check format lint types imports bench soak docs lock clean
.DEFAULT_GOAL := check
# Tests start hundreds of processes: modules are compiled once, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.venv: .venv/ready
.venv/ready: requirements.lock sdk/pyproject.toml server/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "esim-dealer needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "python3 cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e sdk -e server
	@touch $@

dev: .venv
	@$(BIN)/dealer-server dev

# Tests wait as much as they compute: one process more than cores, each with a PostgreSQL of its own.
test: .venv
	$(BIN)/python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

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

docs: .venv
	$(BIN)/python -m docs

# Pins every dependency with its hashes; run after changing a pyproject.toml.
lock: .venv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet \
	  --no-emit-package esim-dealer --no-emit-package esim-dealer-server \
	  --extra test --extra check server/pyproject.toml sdk/pyproject.toml -o requirements.lock

clean:
	rm -rf .venv
