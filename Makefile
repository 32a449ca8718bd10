# Everything runs from .venv, which each target brings up to date first.
PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
# More than cores: much of a test is waiting.
WORKERS ?= 4

.PHONY: up test test-full bench bench-full lint clean

up: .venv/.ready  ## the whole system, in the foreground, until Ctrl-C
	@exec .venv/bin/codehub up

test: lint  ## lint, types, all tests but the full counts
	.venv/bin/pytest -n $(WORKERS) -m "not full"

test-full: lint  ## the promises at full count; the tables of docs/reliability.md are written from it
	rm -rf .report
	CODEHUB_REPORT=.report .venv/bin/pytest -n $(WORKERS) -m "not alone"; first=$$?; \
	CODEHUB_REPORT=.report .venv/bin/pytest -m alone; second=$$?; \
	.venv/bin/python -m tests.report .report && exit $$((first | second))

bench: .venv/.ready  ## the benchmarks: a table of ratios against the floor of the same run
	.venv/bin/python -m bench

bench-full: .venv/.ready  ## also what does not fit into its 15 minutes; docs/performance.md and docs/scale.md are written from it
	.venv/bin/python -m bench --full --docs docs/performance.md
	.venv/bin/python -m bench.start --docs docs/performance.md
	.venv/bin/python -m bench.million --docs docs/scale.md

lint: .venv/.ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m tests.supply.vulnerabilities

clean:  ## what was built here; not the data of `make up`
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

.venv/.ready: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --all-extras --compile-bytecode --python $(PYTHON)
	@touch $@

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: set PYTHON=/path/to/it" >&2; exit 1; }
	@$(PYTHON) -m venv .tools >/dev/null 2>&1 \
		|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y python3-venv && $(PYTHON) -m venv .tools; } \
		|| { echo "The venv module is missing: on Debian, apt-get install python3-venv" >&2; exit 1; }
	.tools/bin/pip install --quiet uv
