# The ways in for a user and for CI. The build itself is CMake's (CMakeLists.txt, CMakePresets.json).
#   make          installs what is missing and builds build/situ
#   make demo     the same, prepares a real model, and lets it answer a question
#   make serve    the same, and serves it at http://127.0.0.1:8080
#   make test     builds and runs all tests; the last line is "N passed, N failed"
#   make test-all what test leaves out too: sweeps, emulated instruction sets, all sanitizers on all tests
#   make quick    the unit tests, the rules about the source and its format: what to run before a commit
#   make fuzz     fuzzers on what reads files: SECONDS=60 for each of TARGETS (all; tests/fuzz)
#   make mutants  small models that were changed a little, against ONNX Runtime: SECONDS=600, SEED=1
#   make format   formats the C++ files
#   make python-test  builds the Python package with pip, and tests it
#   make package  writes a wheel, a Debian package, a tarball and an image into dist/ (on Debian 12); KINDS="tarball deb": these alone
#   make package-test  installs what dist/ has in systems without a compiler, and asks the demo model there
#   make bench    measures the demo model, in place and naive
#   make clean    removes build/ and dist/ (not the private Python and the model: rm -r .venv .models)

MODEL := .models/smollm2-135m-instruct
PYTHON := .venv/bin/python

.PHONY: all build model python demo serve test test-all quick fuzz mutants format python-test package package-test bench clean install-deps

all: build

install-deps:
	@scripts/install_deps.sh

build: install-deps
	@scripts/build.sh release situ

# The model is downloaded and converted while the compilers run.
demo:
	@$(MAKE) --no-print-directory -j2 build model
	@scripts/demo.sh build/situ $(MODEL)

serve:
	@$(MAKE) --no-print-directory -j2 build model
	@exec build/situ serve $(MODEL)

test: install-deps
	@scripts/test.sh

test-all: install-deps
	@scripts/test.sh all

fuzz: SECONDS := 60
fuzz:
	@scripts/install_deps.sh checks
	@scripts/fuzz.sh $(SECONDS) $(TARGETS)

mutants: SECONDS := 600
mutants: SEED := 1
mutants: build .venv-mutants/installed
	@if [ -e ../shared/tools/semantic_mutants.py ]; then \
	  .venv-mutants/bin/python -B ../shared/tools/semantic_mutants.py $(SECONDS) $(SEED); \
	else echo "skipped: no models in the shared folder"; fi

# The environment of ONNX Runtime, which only the mutants need.
.venv-mutants/installed: tools/mutants_requirements.txt
	@rm -rf .venv-mutants
	@python3 -m venv .venv-mutants
	@.venv-mutants/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: -r $<
	@touch $@

quick: install-deps
	@scripts/test.sh quick

format: python
	@$(PYTHON) tests/format_test.py --fix

python-test: install-deps
	@scripts/python_test.sh

package: KINDS :=
package: build
	@scripts/install_deps.sh package
	@scripts/package.sh $(KINDS)

package-test: model
	@scripts/install_deps.sh package
	@scripts/package_test.sh $(MODEL)

bench: build model
	@build/situ bench $(MODEL)

clean:
	rm -rf --one-file-system build dist

# The private Python environment, made again when a list of its packages changes.
python: .venv/installed
.venv/installed: tools/requirements.txt tools/check_requirements.txt | install-deps
	@echo "making .venv with numpy, onnx, gguf, clang-format and nanobind"
	@rm -rf .venv
	@python3 -m venv .venv
	@$(PYTHON) -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: -r tools/requirements.txt -r tools/check_requirements.txt
	@touch $@

# The demo model, made again when the tool changes.
model: $(MODEL)/prepared.json
$(MODEL)/prepared.json: tools/prepare_smollm2.py $(wildcard tools/gguf_to_genai/*.py) .venv/installed
	@$(PYTHON) $< $(MODEL)
	@touch $@
