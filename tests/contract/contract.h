/* Tests of the contracts that docs/contracts.md lists. A program of them runs all that it has, or those of
 * the contract that it is given:
 *
 *     contract-loading code-for-another-target-is-never-loaded
 *
 * The comment above a test says, where that was tried, what was changed in hone to see it fail and how it did.
 */
#ifndef TESTS_CONTRACT_CONTRACT_H
#define TESTS_CONTRACT_CONTRACT_H

#include "cuda_rig.h"

/* A row of a program's table; the test's name begins with the contract's. */
#define CONTRACT(name, function)                                                                                                 \
    {                                                                                                                            \
        name " " #function, function, start, end, NULL                                                                           \
    }

static const char *const compiling[] = {"cuda", "opencl"}; /* devices that compile their kernels */
enum { COMPILING = 2 };

static inline int contract_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                CMFixtureFunction teardown)
{
    struct CMUnitTest chosen[32];
    size_t found = 0;
    for (size_t i = 0; i < count && found < sizeof chosen / sizeof chosen[0]; i++) {
        size_t length = strcspn(tests[i].name, " ");
        if (argc < 2 || (strlen(argv[1]) == length && !strncmp(tests[i].name, argv[1], length)))
            chosen[found++] = tests[i];
    }
    if (!found) {
        fprintf(stderr, "%s: no test of %s\n", argv[0], argc < 2 ? "any contract" : argv[1]);
        return 2;
    }
    return _cmocka_run_group_tests("contract", chosen, found, setup, teardown);
}

#define CONTRACT_MAIN(tests, setup, teardown) contract_main(argc, argv, tests, sizeof tests / sizeof tests[0], setup, teardown)

/* For tests that look at captures: in place of the driver's functions. */
static bool capturing;

static inline CUresult see_begin(CUstream stream, int mode)
{
    capturing = true;
    return genuine.cuStreamBeginCapture(stream, mode);
}

static inline CUresult see_end(CUstream stream, CUgraph *graph)
{
    capturing = false;
    return genuine.cuStreamEndCapture(stream, graph);
}

/* Which variants of kernels a CUDA device has. */
static inline bool has_kernel(const struct device *device, const char *name)
{
    const struct cuda *c = (const struct cuda *)device;
    for (int64_t i = 0; i < c->variant_count; i++)
        if (!strcmp(c->variants[i].kernel->name, name))
            return true;
    return false;
}

static inline int64_t kernels_of(const struct device *device)
{
    return device->counters.compiled + device->counters.loaded;
}

#endif
