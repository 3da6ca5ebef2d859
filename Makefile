# make run: the first grid. make test: checks and all tests. make help: the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help run smoke test check slow data clean

help:
	@echo "make run     environment, then a first grid on the embedded data set: fedcorr and lsg at two noise levels"
	@echo "make test    environment, linting, types, all tests"
	@echo "make check   linting and types only"
	@echo "make slow    the learning checks on real data (many minutes)"
	@echo "make data    fetch CIFAR-10, MNIST and Fashion-MNIST"
	@echo "make smoke   the first grid at smoke scale, in seconds"
	@echo "make clean   remove the environment (not the records)"

$(VENV)/.installed: requirements.txt constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	@touch $@

run: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run -m method=fedcorr,lsg noise.rho=0.4,0.8

smoke: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run -m method=fedcorr,lsg noise.rho=0.4,0.8 scale=smoke

data: $(VENV)/.installed
	$(BIN)/python -m benchmarks.data fetch=cifar10,mnist,fashion_mnist

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy

# The golden values of FedCorr's scenes are checked on the real CIFAR-10 labels; where no source is reached, those tests are skipped and say so.
test: $(VENV)/.installed check
	-$(BIN)/python -m benchmarks.data fetch=cifar10,mnist
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0

slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=0

clean:
	rm -rf $(VENV)
