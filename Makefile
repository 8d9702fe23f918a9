# Every target sets up what it needs in .venv: only Python, pip and make must be on the machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Everything the tests use, at the versions of constraints.txt.
EXTRAS := bench,cli,dask,excel,files,mlflow,onnx,persist,plot,report,serve,texts,torch
# One BLAS thread per process: tests already run in parallel.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Hashes are checked where the lock file was made for this Python and platform. That is decided here and never by a failure: a wrong hash stops.
LOCK := $(shell $(PYTHON) tools/lock.py here)

.PHONY: demo test test-all fuzz coverage lint lock format bench examples docs clean

demo: $(VENV)/.demo
	$(BIN)/poscod demo

test: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# The same with branch coverage, which takes a third longer.
coverage: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=
	$(BIN)/python -m coverage report --fail-under=95

# The long simulations, which `make test` leaves out.
test-all: test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) -m slow tests

# What tests/test_fuzz_files.py does, for longer and with counts: mutated files and bodies of every kind.
fuzz: $(VENV)/.dev
	$(ONE_THREAD) PYTHONPATH=tests $(BIN)/python tests/fuzzers.py $(or $(SECONDS),120)

# Renew requirements.lock after a change of pyproject.toml or constraints.txt.
lock: $(VENV)/.pip
	$(BIN)/python tools/lock.py $(EXTRAS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# Every example; their pictures are the ones that the site shows.
examples: $(VENV)/.dev
	for script in examples/[!_]*.py; do $(ONE_THREAD) $(BIN)/python $$script docs/images/examples || true; done

# The site in site/ (open site/index.html), its links, and every snippet of README and docs.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python docs/_site/check_links.py site README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) README.md docs tests/test_docs

clean:
	rm -rf $(VENV) build dist site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output

$(VENV)/.pip: constraints.txt
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
else
	grep ^pip== $(LOCK) > $(VENV)/pip.lock
	$(BIN)/python -m pip install --quiet --upgrade --require-hashes --requirement $(VENV)/pip.lock
endif
	touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[cli,report]"
	touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml requirements.lock
ifeq ($(LOCK),)
	@echo "requirements.lock is for another Python or platform: versions are those of constraints.txt, hashes are not checked."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]" --group dev
else
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
endif
	@# The browser tests use the machine's Chromium; without one they are skipped.
	@command -v chromium >/dev/null || ( [ "$$(id -u)" = 0 ] && apt-get update && apt-get install --yes --no-install-recommends chromium ) >/dev/null 2>&1 || true
	touch $@
