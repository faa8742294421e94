# `make up` and `make test` set up what they need; everything else is a shortcut.
.DEFAULT_GOAL := help
.PHONY: help setup up down test test-all lint check format docs facts lock clean
PYTHON ?= python3
BIN := .venv/bin
# Without compiled modules every process of a test run, the engine's plugins too, compiles the project again.
unexport PYTHONDONTWRITEBYTECODE
# The types of the clouds' SDKs take a minute to read: read once for all clones of this user.
export MYPY_CACHE_DIR ?= $(or $(GPUFORM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpuform)/mypy

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the virtual environment from the lock

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' || \
	  { echo 'python: $(PYTHON) is older than 3.11.2; install Python 3.11.2 or newer, or make PYTHON=python3.11'; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo 'python: the venv module is missing; on Debian or Ubuntu: apt-get install python3-venv'; exit 2; }
	@$(PYTHON) -m venv .venv
	@# Not compiled: most modules of the clouds' SDKs are never imported, and the others are compiled then.
	@if command -v uv >/dev/null && echo 'setup: virtual environment from requirements.lock, by uv' && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock; then :; else \
	  echo 'setup: virtual environment from requirements.lock, by pip' && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock; fi
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: setup ## Start the embedded control plane and run `pulumi up` on the stack local
	@$(BIN)/gpuform local up

down: ## Stop everything that `make up` started (its data stays)
	@if [ -x $(BIN)/gpuform ]; then $(BIN)/gpuform local stop; fi

test: setup ## Run the gate: every kind of behaviour once
	@$(BIN)/gpuform toolchain build --gate
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m tests.run -m "not nightly"

test-all: setup ## Run every test, and random examples
	@$(BIN)/gpuform toolchain build --tests
	@$(BIN)/python -m tests.prepare --all
	@$(BIN)/python -m tests.run --hypothesis-profile random

lint: setup ## Format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint ## What lint does, and the unit tests
	@$(BIN)/python -m pytest -q -m "unit and not tools" -n logical --dist loadfile

format: setup ## Format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup ## Write the generated pages again: environment, sharing, roles, alerts, Magnum, policies, commands
	@$(BIN)/python -m docs.generate

facts: setup ## List facts that are due for a check, and pins with a newer release
	@$(BIN)/python -m docs.facts

lock: ## Renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --extra aws --extra hosts --extra openstack --extra plan --python-version 3.11.2 --universal --generate-hashes --no-emit-index-url -q -o requirements.lock

clean: ## Forget the embedded cluster and its Pulumi state; refused while a stack elsewhere keeps its state here
	@if [ -x $(BIN)/gpuform ]; then $(BIN)/gpuform local stop --delete; fi
	@rm -rf .gpuform
