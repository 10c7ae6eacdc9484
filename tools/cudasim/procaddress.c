/* cuGetProcAddress: base names without _v2, where the requested version picks the variant. */
#include <string.h>

#include "state.h"

static const struct {
    const char *base;
    int version;
    void (*function)(void);
} FUNCTIONS[] = {
#define F(base, version, name, args) {#base, version, (void (*)(void))name},
#include "functions.def"
#undef F
};

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
    int best = -1, found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !pfn || flags > 2 || version > state_driver_version())
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < (int)(sizeof FUNCTIONS / sizeof *FUNCTIONS); i++) {
        if (strcmp(FUNCTIONS[i].base, symbol))
            continue;
        if (found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (FUNCTIONS[i].version <= version && (best < 0 || FUNCTIONS[i].version > FUNCTIONS[best].version)) {
            best = i;
            found = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    *pfn = NULL;
    if (best >= 0)
        memcpy(pfn, &FUNCTIONS[best].function, sizeof *pfn);
    if (status)
        *status = found;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
    return result ? result : *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
