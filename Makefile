# A front door to CMake. `make` builds the program and the library alone, in build/; the rest works on the presets of
# CMakePresets.json, which build the tests too, in build/PRESET:
#
#     make                        build/hone and build/libhone.so
#     make install                into PREFIX, /usr/local if not given: make install PREFIX=$HOME/.local
#     make check                  what needs no assets, in a minute; make test PRESET=sanitize: all
#     make docs, make format      rewrite the generated pages, and the layout of sources
#     make clean
PRESET ?= release
PREFIX ?= /usr/local
# Ninja where it is installed; one job for each processor that this process may use.
GENERATOR := $(shell command -v ninja >/dev/null && echo -G Ninja)
JOBS ?= $(shell nproc)
.PHONY: all check test presets docs format install clean
all: ; @cmake -S . -B build $(GENERATOR) -DHONE_TESTS=OFF -DHONE_WERROR=OFF >/dev/null && cmake --build build -j $(JOBS)
install: all ; @cmake --install build --prefix "$(PREFIX)"
presets: ; @cmake --preset $(PRESET) >/dev/null && cmake --build --preset $(PRESET)
check: presets ; ctest --preset $(PRESET) -L quick
test: presets ; ctest --preset $(PRESET)
# Rewrites the generated pages, which are otherwise compared.
docs: presets ; HONE_UPDATE_DOCS=1 ctest --preset $(PRESET) -R '^unit-(options|foreign)$$|^ops|^cuda-compile$$|^e2e-scale$$'
format: ; @python3 tests/format.py --write
clean: ; rm -rf build
