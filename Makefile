# Every target sets up its own .venv when it is missing or older than the files that define it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Keep bytecode, whatever the environment says: tests start some hundred processes, and each would compile every module.
export PYTHONDONTWRITEBYTECODE =
DEFINED_BY := pyproject.toml constraints.txt

.PHONY: help demo test lint unit coverage mutants bench reproduce peers torture audit notebooks docs dist package versions ready image deploy clean
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

demo: .venv/base .venv/kernels ## generate a synthetic shop, compare policies, serve it to simulated visitors, with a page
	@$(BIN)/treeward demo

# The linters take one core for a minute, while the tests wait for their kernels.
test: .venv/dev .venv/system .venv/kernels ## everything CI checks: lint, types, layers, tests, doctests, docs examples
	@$(MAKE) --no-print-directory --jobs=2 lint unit

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Pages are tested in a real browser, also by axe-core, and shared stores with a real database. If these cannot be
# installed, their tests are skipped with a message.
AXE := axe-core@4.14.1
.venv/system: .venv/dev Makefile
	@command -v chromium chromium-browser google-chrome > /dev/null \
		|| { echo "Installing Chromium ..."; apt-get install --yes --quiet=2 --no-install-recommends chromium > /dev/null; } \
		|| echo "No Chromium here: tests of pages will be skipped (Debian: apt-get install chromium)"
	@{ command -v npm > /dev/null || { echo "Installing npm ..."; apt-get install --yes --quiet=2 --no-install-recommends npm > /dev/null; }; } \
		&& npm install --prefix .venv/npm --no-save --no-audit --no-fund --silent $(AXE) \
		|| echo "No $(AXE) here: accessibility of pages will not be tested (it is installed by npm; Debian: apt-get install npm)"
	@command -v cc > /dev/null \
		|| { echo "Installing a C compiler ..."; apt-get install --yes --quiet=2 --no-install-recommends gcc libc6-dev > /dev/null; } \
		|| echo "No C compiler here: tests of failing disks will fail (Debian: apt-get install gcc libc6-dev)"
	@ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null \
		|| { echo "Installing PostgreSQL ..."; apt-get install --yes --quiet=2 --no-install-recommends postgresql > /dev/null; } \
		|| echo "No PostgreSQL here: tests of it will be skipped (Debian: apt-get install postgresql)"
	@touch $@

# Three processes on two cores, because a third of the time is waiting for services, browsers and databases. Matrix
# products use one thread: with more, the three processes would wait for one another.
unit coverage: export OPENBLAS_NUM_THREADS = 1
unit coverage: export OMP_NUM_THREADS = 1
unit coverage: PYTEST := -n 3 --dist worksteal -q
unit: .venv/dev .venv/system .venv/kernels
	$(BIN)/python -m pytest $(PYTEST)

# With interpreted kernels, a test that takes longer than eight seconds is stopped, because some would take hours. Tests
# that did not pass then run again with compiled kernels, and have to pass.
coverage: .venv/dev .venv/system .venv/kernels ## the tests with interpreted kernels, so that every line counts (half an hour)
	-PATIENCE=8 DURATIONS=durations.json NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(PYTEST) --cov --cov-context=test --cov-report= \
		--ignore tests/test_docs.py --ignore tests/tree/test_draw.py --ignore tests/test_notebooks.py --ignore tests/store/test_faults.py
	REST=durations.json $(BIN)/python -m pytest $(PYTEST) --cov --cov-append --cov-report=term

mutants: .venv/dev ## after make coverage: make 200 changes to bandit, policy, state and store, and see whether a test fails
	@$(PIP) cosmic-ray
	$(BIN)/python tests/mutants.py

bench: .venv/dev .venv/kernels ## the measured targets, as ratios to a named baseline (about 20 minutes)
	@missed=0; for script in $(filter-out benchmarks/load.py benchmarks/wrk.py benchmarks/peers.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || missed=1; done; exit $$missed

# DATA is a folder with the data sets, or NAME=FOLDER for each. ONLY names jobs, by the beginnings of their names.
reproduce: .venv/dev .venv/kernels ## rerun the figures of README and docs: make reproduce DATA=FOLDER (about two and a half hours)
	$(BIN)/python benchmarks/reproduce $(addprefix --data ,$(DATA)) $(addprefix --only ,$(ONLY)) --update

peers: .venv/dev .venv/kernels ## compare treeward with its peers, which are installed in .peers/ (about 12 minutes)
	$(BIN)/python benchmarks/peers.py

torture: .venv/dev .venv/system .venv/kernels ## kill services and databases, send 100,000 fuzzed bodies, open torn files (half an hour)
	$(BIN)/python tests/torture.py 200
	$(BIN)/python tests/torture.py 20 --database
	TORTURE=1 $(BIN)/python -m pytest -q tests/store/test_postgres.py tests/serve/test_snapshots.py -k "decide_as_one or killed"
	TORTURE=1 $(BIN)/python -m pytest -q tests/explorer/test_changes.py tests/core/test_tasks.py tests/experiment/test_run.py -k "Interleavings or kill or earn_the_same"
	TORTURE=1 $(BIN)/python -m pytest -q tests/simulate/test_run.py -k authors
	TORTURE=1 $(BIN)/python -m pytest -q tests/store/test_sqlite.py tests/serve/test_bodies.py -k "torn or fuzz or schemathesis"

# If the index has no database of vulnerabilities, pip-audit reports no problem at all. So first ask about a package that
# is known to be vulnerable.
AUDIT := .audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off
.audit/bin/pip-audit:
	@echo "Setting up .audit ..."
	@$(PYTHON) -m venv .audit
	@.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

audit: .audit/bin/pip-audit ## known vulnerabilities in the versions of constraints.txt
	@echo jinja2==2.4.1 > .audit/known.txt
	@$(AUDIT) -r .audit/known.txt -f json 2> .audit/said.txt | grep -q '"fix_versions"' \
		|| { echo "Nothing was audited: no database of vulnerabilities can be reached from here (the public package index has one)"; exit 1; }
	$(AUDIT) --strict -r constraints.txt

notebooks: .venv/docs .venv/kernels ## run the notebooks and store what they print and draw (two minutes)
	$(BIN)/python docs/run_notebooks.py

image: .venv/dev ## build the image and run it with a read-only root; as root on Debian with debootstrap and buildah
	$(BIN)/python -m tests.image

.deploy/bin/kubernetes-validate: constraints.txt
	@echo "Setting up .deploy ..."
	@$(PYTHON) -m venv .deploy
	@.deploy/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt check-jsonschema kubernetes-validate
	@touch $@

# It also needs helm (or HELM=PATH), promtool and prometheus, systemd-analyze and nginx. `python -m tests.deploying` renders
# the chart into deploy/kubernetes.yaml.
deploy: .venv/dev .venv/kernels .deploy/bin/kubernetes-validate ## check compose.yaml, chart, unit, alerts and scraping with the real programs (a minute)
	$(BIN)/python -m pytest -q tests/deploying.py

docs: .venv/docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

dist: .venv/base ## build the wheel and the source archive into dist/
	@$(PIP) build
	$(BIN)/python -m build

package: .venv/dev ## build both, install the wheel in an empty environment, and use it without extras (four minutes)
	@$(PIP) build
	$(BIN)/python -m pytest -q tests/package.py

.versions/uv/bin/uv:
	@echo "Setting up .versions ..."
	@$(PYTHON) -m venv .versions/uv
	@.versions/uv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv

# SETS names some of lowest, newest and tested; PYTHON the interpreter that runs the tests.
versions: .versions/uv/bin/uv ## a quick part of the tests with the lowest and the newest dependencies (ten minutes)
	$(PYTHON) tests/versions.py $(SETS)

ready: .venv/base ## whether version, changelog and citation fit a tag: make ready TAG=v0.1.0
	@$(PIP) pyyaml
	@$(BIN)/python tests/ready.py "$(TAG)"

clean: ## remove what the other targets made
	rm -rf .venv .versions .audit .peers site dist demo-out reproduce-out test-shots .pytest_cache .mypy_cache .ruff_cache .hypothesis .deploy .image
