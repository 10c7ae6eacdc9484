# A front door to CMake. `make` builds only the program and the library, in build/; the rest works on the presets of
# CMakePresets.json, which build the tests too, in build/PRESET:
#
#     make                        build/hone and build/libhone.so
#     make install                into PREFIX, /usr/local if not given: make install PREFIX=$HOME/.local
#     make check                  the unit tests, which need no assets, and only their programs are built for them
#     make test                   all tests; make test PRESET=sanitize: under sanitizers
#     make docs, make format      rewrite the generated pages (that of CUDA kernels only with assets), and the layout of sources
#     make clean
PRESET ?= release
PREFIX ?= /usr/local
# Ninja where it is installed; one job for each processor that this process may use.
GENERATOR := $(shell command -v ninja >/dev/null && echo -G Ninja)
JOBS ?= $(shell nproc)
CONFIGURE = cmake --preset $(PRESET) >/dev/null
BUILD = cmake --build --preset $(PRESET) -j $(JOBS)
.PHONY: all check test docs format install clean
all: ; @cmake -S . -B build $(GENERATOR) -DHONE_TESTS=OFF -DHONE_WERROR=OFF >/dev/null && cmake --build build -j $(JOBS)
install: all ; @cmake --install build --prefix "$(PREFIX)"
check: ; @$(CONFIGURE) && $(BUILD) --target units && ctest --preset $(PRESET) -L '^unit$$'
test: ; @$(CONFIGURE) && $(BUILD) && ctest --preset $(PRESET)
# Rewrites the generated pages, which are otherwise compared.
docs: ; @$(CONFIGURE) && $(BUILD) --target generated && HONE_UPDATE_DOCS=1 ctest --preset $(PRESET) -L '^generated$$'
format: ; @python3 tests/format.py --write
clean: ; rm -rf build
