# Two commands: `make demo` and `make test`. Each sets up what it needs, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test install format lint types imports tests plain-tests browser-tests docs site frontend browser playwright chromium dist compatibility house reference frameworks benchmarks clean
.DELETE_ON_ERROR:

demo: install
	$(BIN)/calibrant demo

test: lint types imports tests

install: $(READY)

# The constraints pin a CPU build of torch: without the pin pip would fetch gigabytes of CUDA. What they pin is installed
# first, just as it is: among all versions of all packages pip searches for most of a minute.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "Python 3.11 or newer is needed; say make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about a minute the first time) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --constraint constraints.txt --editable '.[dev]'
	@touch $@

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/lint-imports

# Doctests in src, README and docs blocks, and everything under tests. A process that has no tests left takes half of
# the other's; numpy's threads, which torch does not set, would wait for each other on two cores. Tests in a browser come
# after them, a process for each file, whose tests share a browser (5: none, without one), and those that failed have a
# second try: Chromium itself fails at times.
tests: plain-tests browser-tests

plain-tests: install
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist worksteal --ignore tests/browser

# What failed is kept apart from what other tests, which may run beside these, have to keep.
BROWSER := tests/browser --override-ini cache_dir=.pytest_cache/browser
browser-tests: install
	OMP_NUM_THREADS=1 $(BIN)/pytest $(BROWSER) --numprocesses 2 --dist loadfile || [ $$? = 5 ] || $(BIN)/pytest $(BROWSER) --last-failed

# Wheel and source archive in dist/, and the demo run by the wheel in an environment of its dependencies alone.
dist: install
	rm -rf dist build/lib
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/pytest tests/dist

# Python 3.11 to 3.13 and the lowest versions of the dependencies; see benchmarks/compatibility.py for less than all.
PYTHONS ?= 3.11 3.12 3.13
TESTS ?= tests/contracts tests/unit
TORCH ?=
compatibility: install
	$(BIN)/python -m benchmarks.compatibility --pythons '$(PYTHONS)' --tests '$(TESTS)' --torch '$(TORCH)'

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install
	$(BIN)/python docs/build.py

# The pages as a searchable site with an API reference in build/site, by MkDocs in an environment of its own.
# The gallery is drawn before, in two or three minutes, wherever figures or the gallery have changed.
site: .venv-site/.ready build/gallery/.ready
	.venv-site/bin/python docs/site_pages.py

build/gallery/.ready: docs/gallery.py $(shell find src/calibrant/plots -name '*.py') | install
	rm -rf build/gallery
	$(BIN)/python docs/gallery.py build/gallery
	@touch $@

.venv-site/.ready: docs/requirements.txt
	test -x .venv-site/bin/python || $(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
	@touch $@

# Builds the script and the style sheet of reports, which are committed; needs Node.
frontend: frontend/node_modules/.ready
	cd frontend && npm run --silent check && npm run --silent build

frontend/node_modules/.ready: frontend/package.json frontend/package-lock.json
	cd frontend && npm ci --no-audit --no-fund
	@touch $@

# What tests/browser needs; without it they are skipped.
browser: playwright chromium

playwright: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/browser/requirements.txt

chromium:
	command -v chromium || timeout 300 sh -c 'apt-get update --quiet=2; apt-get install --yes --no-install-recommends chromium'

# Size and shape of the code beside their bounds; a test keeps them from growing.
house: install
	$(BIN)/python -m benchmarks.house --commands

# Asks the peers again, in an environment of their own, and records their answers for the tests.
reference: .venv-reference/.ready
	.venv-reference/bin/python tests/reference/record.py

# Doors to frameworks that the environment of the tests lacks: Lightning, Hugging Face, Dask, Ray, Spark, all on the page.
frameworks: .venv-reference/.ready
	OMP_NUM_THREADS=1 .venv-reference/bin/python -m pytest -rs tests/unit/integrations tests/unit/scale tests/examples src/calibrant/integrations
	OMP_NUM_THREADS=1 .venv-reference/bin/python -m pytest -rs tests/docs/test_pages.py -k framework

# All questions, or some: make benchmarks QUESTIONS="temperature binning"
benchmarks: .venv-reference/.ready
	.venv-reference/bin/python -m benchmarks $(QUESTIONS)

.venv-reference/.ready: tests/reference/requirements.txt pyproject.toml
	test -x .venv-reference/bin/python || $(PYTHON) -m venv .venv-reference
	.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/reference/requirements.txt
	.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torch-uncertainty==0.13.0 pycalib==0.1.0.dev6
	.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python dirichletcal==0.5.3
	.venv-reference/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:
	rm -rf $(VENV) .venv-reference .venv-site .venv-compatibility demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
