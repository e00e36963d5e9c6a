# Everything runs in .venv, which is made with nothing but Python itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for processes and clocks for much of their time, so there are more of these than cores.
WORKERS ?= 4
# Of the tests with real processes, which are larger; those that are judged by the clock run two at a time.
WAITING ?= 3
# 1: install the versions and hashes of requirements-ci.txt, which fit one Python on one platform (its first line says which).
LOCKED ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes; where compiled modules are not kept, each compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-slow test-servers ci trials screenshots servers model variants check format chaos soak load fuzz requirements docs dist bench-queue bench-scheduler bench-counters bench-failover bench-profile clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.installed ## Create .venv and install tenure in it, with all development tools

# Debian packs ensurepip apart from Python; where it is missing and we may, it is installed.
$(VENV)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer, or name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "tenure needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): name a newer one with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qqy install --no-install-recommends python3-venv >/dev/null && \
		$(PYTHON) -c 'import ensurepip'; } || { \
		echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),$(BIN)/python -m pip install -q --require-hashes -r requirements-ci.txt)
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@

demo: venv ## Watch an election and shared work among real processes, one killed and one frozen: half a minute
	$(BIN)/tenure demo

test: venv ## Run the tests that need nothing installed but Python
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --budget tests/budget.toml#test --durations=10 \
		-m "not servers and not slow and not trials" tests

test-slow: venv ## Run the slow tests of each change that need no server, and no others
	$(BIN)/python -m pytest -m "slow and not servers and not trials" tests

test-servers: venv servers ## Run the tests against real object stores, the slow ones, and three minutes of chaos
	$(BIN)/python -m tools.model --if-changed
	$(BIN)/python -m pytest -n $(WAITING) --dist worksteal --budget tests/budget.toml#servers --durations=25 \
		-m "(servers or slow) and not chaos and not trials" tests
	$(BIN)/python -m pytest -m "chaos and not trials" tests/chaos

# One after the other, also with -j: most of it waits for clocks that something else running would disturb.
ci: venv ## Run all that must pass before a change goes in: check, test and test-servers
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-servers

# All of it, whatever fails in the first part.
trials: venv servers ## Run what must pass before a release, besides ci: repetitions, scale, load, the model (an hour)
	@failed=; \
	$(BIN)/python -m tools.model || failed=1; \
	$(BIN)/python -m pytest -n $(WAITING) --dist worksteal -m "trials and not chaos" tests || failed=1; \
	$(BIN)/python -m pytest -m "trials and chaos" tests/chaos || failed=1; \
	test -z "$$failed"

variants: venv ## Search a seed for each broken variant of the simulator (ARGS="no-quarantine": only this), and write them down
	$(BIN)/python -m tools.variants $(ARGS)

model: venv servers ## Search the model of the lease exhaustively, and its broken variants (spin)
	$(BIN)/python -m tools.model

# The stores are installed by `make servers`, which this does not do again each time.
chaos: venv ## Every part at once, and all that may go wrong (STORE=ministack|ceph|directory MINUTES=3 SEED=... ARGS="...")
	$(BIN)/python -m lab.chaos --store $(or $(STORE),ministack) --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: venv ## Does anything grow? Real processes (MINUTES=60 STORE=directory|ministack), or ARGS="--days 8" in simulated time
	$(BIN)/python -m lab.soak --store $(or $(STORE),directory) --minutes $(or $(MINUTES),60) $(ARGS)

load: venv ## 200 coordinators, a queue at 80 % of its maximum, leaders killed, on ministack (MINUTES=5 ARGS="...")
	$(BIN)/python -m lab.load --minutes $(or $(MINUTES),5) $(ARGS)

screenshots: venv servers ## Make the pictures of the dashboard in docs/pictures, of real processes in a real browser
	TENURE_SCREENSHOTS=docs/pictures $(BIN)/python -m pytest -q -m servers tests/browser/test_screenshots.py

servers: ## Install the object stores and the browser that test-servers runs against
	tools/install-servers

check: venv ## Lint, check formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/mypy lab tools bench
	$(BIN)/mypy --strict examples/*.py
	$(BIN)/python tools/layers.py src/tenure

format: venv ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: venv ## Fuzz what reads a bucket, guided by coverage, for SECONDS=60 (atheris, which has wheels for Linux on x86-64)
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -q -e '.[fuzz]'
	$(BIN)/python -m tools.fuzz $(or $(SECONDS),60)

# Not run for each change: half an hour or more. What survives and is judged stands in tests/mutants/survivors.toml.
.PHONY: mutants
mutants: venv ## Make COUNT=200 small mistakes by SEED=1 in the lease, the ledger and the deciders: do the tests see them? (ARGS)
	$(BIN)/python -m tools.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),200) $(ARGS)

requirements: venv ## Print the tests that passed for each requirement (STRICT=1: fail if one has none, or has no mutant that makes a test fail)
	@$(BIN)/python tools/requirements.py $(if $(filter-out 0,$(STRICT)),--strict)

docs: venv ## Build these documents into .build/docs/index.html; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -n -b html docs .build/docs

dist: venv ## Build the source distribution and the wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

BENCHES := coordination failover scale queue counters scheduler ttl store idle dashboard profile

.PHONY: bench
bench: ## Measure everything, one bench after the other, and write docs/benchmarks.md: hours
	@missed=; for name in $(BENCHES); do \
		make --no-print-directory bench-$$name || missed="$$missed $$name"; done; \
	$(BIN)/python -m bench.report && { test -z "$$missed" || { echo "missed a bar, or failed:$$missed"; exit 1; }; }

bench-store: ## Measure the stores (bench-NAME runs bench/NAME.py; options in ARGS="...")
bench-ttl: ## Measure records that expire, of 10,000 and of a million (ARGS="--quick": a first look)
bench-%: venv
	$(BIN)/python -m bench.$* $(ARGS)

# The peers come with pip and npm into .bench, made by the bench itself on first use.
bench-queue: venv ## Measure the queue, beside others on Redis and on S3 (ARGS="--quick": a first look)
	tools/install-servers redis-server
	$(BIN)/python -m bench.queue $(ARGS)

bench-counters: venv ## Measure counters from two processes, beside s3db.js and Redis (ARGS="--quick": a first look)
	tools/install-servers redis-server
	$(BIN)/python -m bench.counters $(ARGS)

# The client of etcd is built from the sources that Debian has of it. Every server is a child process of the bench.
bench-failover: venv ## Measure takeovers and double leaders, beside s3db.js, etcd, ZooKeeper and Redis (ARGS="--quick")
	tools/install-servers redis-server etcd:etcd-server /usr/share/java/zookeeper.jar:zookeeper java:default-jre-headless \
		go:golang-go /usr/share/gocode/src/go.etcd.io/etcd/clientv3:golang-etcd-server-dev
	$(BIN)/python -m bench.failover $(ARGS)

bench-profile: venv ## Measure where the time goes, and what it was before (ARGS="--before REV")
	$(BIN)/python -m bench.profile $(ARGS)

bench-scheduler: venv ## Measure the scheduler with 10,000 jobs, beside APScheduler (ARGS="--quick": a first look)
	$(BIN)/python -m bench.scheduler $(ARGS)

# The tool has an environment of its own, one for each version: what it needs is not what is looked at. Without --strict
# it says that there are no holes also where the database knows none of the packages, or cannot be asked.
PIP_AUDIT := 2.10.1
AUDIT := .build/pip-audit-$(PIP_AUDIT)
.PHONY: audit
audit: venv ## Ask for known holes in everything that is installed here (pip-audit; needs the network)
	test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install -q pip-audit==$(PIP_AUDIT); }
	$(BIN)/python -m pip freeze --exclude-editable > .build/installed.txt
	$(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps -r .build/installed.txt

clean: ## Remove everything that was generated or installed here
	rm -rf $(VENV) .servers .bench .reports .mypy_cache .ruff_cache .pytest_cache .hypothesis .build dist build
	rm -rf src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
