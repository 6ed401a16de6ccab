# make demo   sets up and runs the main job on the embedded backend
# make test   sets up and passes the tests
# make check  lint, formatting and types
# make docs   builds the documentation into site/
# make grpo   trains a tiny model with GRPO on this machine's CPU, and draws its curve
# make bench  runs the benchmarks (a quarter of an hour)

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PACKAGES := -e core[testing] -e plugins/transformers[engine]
SOURCES  := core plugins tests examples benchmarks
MANIFESTS := core/pyproject.toml plugins/transformers/pyproject.toml

.PHONY: demo test check docs grpo bench clean

demo: $(VENV)/.demo
	model=$$($(BIN)/python examples/make_demo_model.py) && out=demo-output/$$(date +%Y%m%d-%H%M%S) && \
	$(BIN)/rollout run --backend transformers --model "$$model" --prompts examples/prompts.jsonl \
	    --chat -n 2 --max-tokens 48 --temperature 0.7 --seed 1 --output "$$out" && \
	$(BIN)/python examples/show_samples.py "$$out"

test: $(VENV)/.test
	$(BIN)/python examples/make_demo_model.py
	$(BIN)/python -m pytest

check: $(VENV)/.test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy core/src plugins/transformers/src

docs: $(VENV)/.docs
	$(BIN)/zensical build --strict

grpo: $(VENV)/.test
	$(BIN)/python examples/grpo_cpu/train.py --output grpo-output

bench: $(VENV)/.test
	$(BIN)/python benchmarks/client.py
	model=$$($(BIN)/python examples/make_demo_model.py) && for name in engine run training_step; do \
	    $(BIN)/python benchmarks/$$name.py --model "$$model"; done

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rollout needs Python 3.11 or newer; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# A stamp is older than the file that it was made from when that file has changed since.
$(VENV)/.%: requirements/%.txt $(MANIFESTS) | $(VENV)/.python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $< $(PACKAGES)
	touch $@

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
