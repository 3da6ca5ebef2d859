# make run: a first sweep. make test: all checks and tests. make help: all targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COVERAGE_FLOOR := 85
export OMP_NUM_THREADS ?= 1

.PHONY: help run smoke test check docs cluster faults slow data clean

help:
	@echo "make run     install, then run a first sweep on a bundled dataset and print a results table"
	@echo "make test    install, then run formatting, lint, types, documentation and tests"
	@echo "make check   formatting, lint and types only"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make cluster a sweep on a real Slurm of one node, with faults (minutes; needs Slurm and root)"
	@echo "make faults  100 kills at random moments, faulty disks, other circumstances (minutes)"
	@echo "make slow    learning checks on real data (many minutes)"
	@echo "make data    download CIFAR-10, MNIST and Fashion-MNIST"
	@echo "make smoke   the first sweep at smoke scale (seconds)"
	@echo "make clean   remove the environment and the built documentation; keeps all runs"

$(VENV)/.installed: requirements.txt constraints.txt setup.cfg
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.tools: $(VENV)/.installed requirements-test.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-test.txt -c constraints.txt
	@touch $@

run: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run -m method=fedcorr,lsg noise.rho=0.4,0.8

smoke: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run -m method=fedcorr,lsg noise.rho=0.4,0.8 scale=smoke

data: $(VENV)/.installed
	$(BIN)/python -m benchmarks.data fetch=cifar10,mnist,fashion_mnist

check: $(VENV)/.tools
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.tools
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

# Golden values of FedCorr's scenarios are checked on the real CIFAR-10 labels. Tests that need data
# are skipped with a reason if it cannot be downloaded.
test: $(VENV)/.tools
	+@$(MAKE) --no-print-directory --jobs 2 --output-sync check docs
	-$(BIN)/python -m benchmarks.data fetch=cifar10,mnist
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
		--cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR)

# Skipped with a reason without Slurm (apt-get install slurmctld slurmd slurm-client munge).
cluster: $(VENV)/.tools
	$(BIN)/python tests/cluster/slurm.py

# The tests of full and read-only disks need root.
faults: $(VENV)/.tools
	$(BIN)/python -m pytest -m "faults or not faults" -s -o faulthandler_timeout=0 tests/faults

slow: $(VENV)/.tools
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=0

clean:
	rm -rf $(VENV) docs/_build docs/generated
