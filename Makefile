# A front door to the presets of CMakePresets.json: make, make quick, make test PRESET=sanitize, make docs, make install, make clean.
PRESET ?= release
.PHONY: all quick test docs format install clean
all: ; @cmake --preset $(PRESET) >/dev/null && cmake --build --preset $(PRESET)
# What needs no assets, in a minute.
quick: all ; ctest --preset $(PRESET) -L quick
test: all ; ctest --preset $(PRESET)
# Rewrites the generated pages, which are otherwise compared.
docs: all ; HONE_UPDATE_DOCS=1 ctest --preset $(PRESET) -R '^unit-(options|foreign)$$|^ops|^cuda-compile$$'
format: ; @python3 tests/format.py --write
install: all ; cmake --install build/$(PRESET)
clean: ; rm -rf build
