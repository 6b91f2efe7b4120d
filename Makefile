# Every target sets up its own .venv when it is missing or older than the files that define it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Bytecode is kept, whatever the environment says: tests start some hundred processes, and each would compile every module.
export PYTHONDONTWRITEBYTECODE =
DEFINED_BY := pyproject.toml constraints.txt

.PHONY: help demo test lint unit coverage mutants bench peers torture audit docs dist package clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/base: $(DEFINED_BY)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "treeward needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "Setting up .venv (a minute on a fresh machine) ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) -e '.[serve]'
	@touch $@

.venv/dev: .venv/base
	@echo "Installing the development tools and torch ..."
	@$(PIP) torch
	@$(PIP) -e '.[dev]'
	@touch $@

.venv/docs: .venv/dev
	@echo "Installing the documentation tools ..."
	@$(PIP) -e '.[docs]'
	@touch $@

# Compiled kernels do not notice when a function they call has changed in another file.
.venv/kernels: $(shell find src -name '*.py') | .venv/base
	@find src -name '*.nbi' -delete -o -name '*.nbc' -delete
	@touch $@

demo: .venv/base .venv/kernels ## make up a world, compare policies, serve it to visitors with a page to look at
	@$(BIN)/treeward demo

# The linters take a core and a minute: as long as the tests wait for their kernels.
test: .venv/dev .venv/system .venv/kernels ## everything CI checks: lint, types, layers, tests, doctests, docs examples
	@$(MAKE) --no-print-directory --jobs=2 lint unit

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Pages are opened in a real browser, and stores share a real database; where these cannot be installed, those tests
# say so and are passed over.
.venv/system: .venv/dev
	@command -v chromium chromium-browser google-chrome > /dev/null \
		|| { echo "Installing Chromium ..."; apt-get install --yes --quiet=2 --no-install-recommends chromium > /dev/null; } \
		|| echo "No Chromium here: tests of pages will be skipped (Debian: apt-get install chromium)"
	@command -v cc > /dev/null \
		|| { echo "Installing a C compiler ..."; apt-get install --yes --quiet=2 --no-install-recommends gcc libc6-dev > /dev/null; } \
		|| echo "No C compiler here: tests of failing disks will fail (Debian: apt-get install gcc libc6-dev)"
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null \
		|| { echo "Installing PostgreSQL ..."; apt-get install --yes --quiet=2 --no-install-recommends postgresql > /dev/null; } \
		|| echo "No PostgreSQL here: tests of it will be skipped (Debian: apt-get install postgresql)"
	@touch $@

# Three at a time on two cores: a third of the time is waiting for services, browsers and databases. Matrix products keep to
# one thread: those of three processes would wait for one another.
unit coverage: export OPENBLAS_NUM_THREADS = 1
unit coverage: export OMP_NUM_THREADS = 1
unit coverage: PYTEST := -n 3 --dist worksteal -q
unit: .venv/dev .venv/system .venv/kernels
	$(BIN)/python -m pytest $(PYTEST)

# With kernels interpreted, a test that takes longer than eight seconds is stopped: some would take hours. What did not
# pass in that way is run again as it is, and has to pass.
coverage: .venv/dev .venv/system .venv/kernels ## the tests with kernels interpreted, so that every line is seen (half an hour)
	-PATIENCE=8 DURATIONS=durations.json NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(PYTEST) --cov --cov-context=test --cov-report= \
		--ignore tests/test_docs.py --ignore tests/tree/test_page.py --ignore tests/test_notebooks.py --ignore tests/store/test_faults.py
	REST=durations.json $(BIN)/python -m pytest $(PYTEST) --cov --cov-append --cov-report=term

mutants: .venv/dev ## after make coverage: 200 changes to bandit, policy, state and store, and whether a test notices
	@$(PIP) cosmic-ray
	$(BIN)/python tests/mutants.py

bench: .venv/dev .venv/kernels ## the measured targets, as ratios against a named baseline (about 20 minutes)
	@missed=0; for script in $(filter-out benchmarks/load.py benchmarks/peers.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || missed=1; done; exit $$missed

peers: .venv/dev .venv/kernels ## treeward beside its peers, each installed in .peers/ at first (about 12 minutes)
	$(BIN)/python benchmarks/peers.py

torture: .venv/dev .venv/system .venv/kernels ## services and databases killed, 100,000 fuzzed bodies, every torn tail (half an hour)
	$(BIN)/python tests/torture.py 200
	$(BIN)/python tests/torture.py 20 --database
	TORTURE=1 $(BIN)/python -m pytest -q tests/store/test_postgres.py tests/serve/test_snapshots.py -k "decide_as_one or killed"
	TORTURE=1 $(BIN)/python -m pytest -q tests/explorer/test_changes.py tests/core/test_tasks.py tests/experiment/test_experiment.py -k "Interleavings or kill or earn_the_same"
	TORTURE=1 $(BIN)/python -m pytest -q tests/simulate/test_run.py -k authors
	TORTURE=1 $(BIN)/python -m pytest -q tests/store/test_sqlite.py tests/serve/test_service.py -k "torn or fuzz or schemathesis"

# Where the index has no database of vulnerabilities, pip-audit finds nothing wrong with anything: so a package that is
# known to be vulnerable is asked for first.
AUDIT := .audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off
.audit/bin/pip-audit:
	@echo "Setting up .audit ..."
	@$(PYTHON) -m venv .audit
	@.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

audit: .audit/bin/pip-audit ## known vulnerabilities in the versions of constraints.txt
	@echo jinja2==2.4.1 > .audit/known.txt
	@$(AUDIT) -r .audit/known.txt -f json 2> .audit/said.txt | grep -q '"fix_versions"' \
		|| { echo "Nothing was audited: no database of vulnerabilities can be reached from here (pypi.org has one)"; exit 1; }
	$(AUDIT) --strict -r constraints.txt

docs: .venv/docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

dist: .venv/dev ## build the wheel and the source archive into dist/
	@$(PIP) build
	$(BIN)/python -m build

package: .venv/dev ## build both, install the wheel in an empty environment, and use it without extras (four minutes)
	@$(PIP) build
	$(BIN)/python -m pytest -q tests/package.py

clean: ## remove what the other targets made
	rm -rf .venv .audit .peers site dist demo-out test-shots .pytest_cache .mypy_cache .ruff_cache .hypothesis
