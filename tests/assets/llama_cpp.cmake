# Read as llama.cpp's project begins, whose package for Python asks for the library of its programs too.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
