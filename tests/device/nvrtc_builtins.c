/* Stands in for the library that NVRTC opens next to itself (nvrtc.c): it is there, and that is all. */
extern const int nvrtc_builtins;
const int nvrtc_builtins = 1;
