# Two commands do everything, set-up included, on a machine that only has Python 3.11+, make and git:
#
#   make train    train the example agent; ARGS adds options or overrides them: make train ARGS="--seed 2"
#   make test     run all that CI runs
#
# and for work on Stepherd itself:
#
#   make check    the quick part of `make test`: before every commit
#   make format   rewrite the code in the house format
#   make setup    only create or refresh .venv
#   make clean    remove caches and build outputs; `make distclean` removes .venv as well
#
# PYTHON chooses the interpreter that .venv is made from: make test PYTHON=python3.12

PYTHON ?= python3
ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready
UNFINISHED := $(VENV)/unfinished
# The folders that have Python in them; mypy takes no others.
CODE := $(strip $(foreach folder,src tests bench examples,$(if $(shell find $(folder) -name '*.py' 2>/dev/null),$(folder))))

.PHONY: train test check format setup clean distclean
.PHONY: format-check lint types types-windows types-macos

train: $(READY)
	$(VENV)/bin/stepherd learn examples/cartpole.yaml --num-envs 8 --force $(ARGS)

test: format-check lint types types-windows types-macos
	$(RUN) -m pytest $(ARGS)

check: format-check lint types
	$(RUN) -m pytest tests/tidy tests/unit $(wildcard tests/simulation) $(ARGS)

format: $(READY)
	$(RUN) -m ruff format $(CODE)
	$(RUN) -m ruff check --fix $(CODE)

format-check: $(READY)
	$(RUN) -m ruff format --check $(CODE)

lint: $(READY)
	$(RUN) -m ruff check $(CODE)

# One cache per platform, or each run would throw away the work of the one before it.
types: $(READY)
	$(RUN) -m mypy --platform linux $(CODE)

types-windows: $(READY)
	$(RUN) -m mypy --platform win32 --cache-dir .mypy_cache/windows src  # the tests start POSIX processes

types-macos: $(READY)
	$(RUN) -m mypy --platform darwin --cache-dir .mypy_cache/macos $(CODE)

setup: $(READY)

# The stamp holds the folder it was made in, because a virtual environment cannot be moved; and .venv may have lost
# its Python in an upgrade of the system. Either way it is made again.
ifneq ($(shell $(RUN) -c 'print(open("$(READY)").read().strip())' 2>/dev/null),$(CURDIR))
$(READY): stale
.PHONY: stale
stale: ;
endif

# `unfinished` is there while packages are being installed. Found at the start, it says that an earlier set-up was
# killed half-way, so nothing in .venv can be relied on. `activate` is the last thing that venv writes, and knows where.
$(READY): pyproject.toml requirements-dev.txt
	@rm -f $(READY)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Stepherd needs Python 3.10 or newer, but $(PYTHON) is %d.%d; name a newer one: make PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo '$(PYTHON) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@if [ -e $(UNFINISHED) ] || ! grep -qsF '$(CURDIR)/$(VENV)' $(VENV)/bin/activate || ! $(RUN) -c 'import pip' 2>/dev/null; then \
		echo 'Making $(VENV)'; $(PYTHON) -m venv --clear $(VENV); \
	fi
	@echo 'Installing Stepherd and what it needs into $(VENV); the first time takes a few minutes (PyTorch is large)'
	@touch $(UNFINISHED)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(RUN) -m pip install -qq --requirement requirements-dev.txt; \
		status=$$?; rm -f $(UNFINISHED); exit $$status
	@echo '$(CURDIR)' > $(READY)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
