/* The CUDA device on the simulator (tools/cudasim), from inside.
 *
 * The driver's functions are a table of pointers, so that a test can put one of its own in a function's place: to make it fail,
 * or to see how it is called.
 */
#ifndef TESTS_DEVICE_CUDA_RIG_H
#define TESTS_DEVICE_CUDA_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "device/cuda.h"
#include "ops/ops.h"
#include "test.h"

/* A counter of the simulator, which this program is linked with. Its header is not used: it declares the driver's names too. */
long long cudasim_count(const char *what);

static inline long long simulator_count(const char *what)
{
    return cudasim_count(what);
}

static struct cuda_library genuine; /* the functions as they were found */
static int warnings;
static char warning[1024]; /* the last one */

static inline void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level < LOG_WARNING)
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

/* --- a cache of the test's own -------------------------------------------------------------------------------------------- */

static char cache_dir[32], kernels_dir[64];
static char *shared_cache; /* what $HONE_CACHE was */

/* Compiled kernels are kept in an empty folder until the test ends. */
static inline void own_cache(void)
{
    snprintf(cache_dir, sizeof cache_dir, "/tmp/hone-cuda-XXXXXX");
    assert_non_null(mkdtemp(cache_dir));
    snprintf(kernels_dir, sizeof kernels_dir, "%s/kernels", cache_dir);
    const char *before = getenv("HONE_CACHE");
    shared_cache = before ? strdup(before) : NULL;
    setenv("HONE_CACHE", cache_dir, 1);
}

static inline void drop_cache(void)
{
    if (!*cache_dir)
        return;
    directory_remove(cache_dir);
    *cache_dir = 0;
    if (shared_cache)
        setenv("HONE_CACHE", shared_cache, 1);
    else
        unsetenv("HONE_CACHE");
    free(shared_cache);
}

/* --- before and after a test ------------------------------------------------------------------------------------------------ */

static inline int start(void **state)
{
    (void)state;
    warnings = 0;
    unsetenv("CUDA_GRAPH");
    log_set_sink(count_warning, NULL);
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    bool loaded = genuine.cuInit != NULL;
    if (loaded)
        cu = genuine;
    drop_cache();
    return simulator_count("faults") != 0; /* whatever a test does, the simulator must not complain */
}

static inline struct device *open_device(void)
{
    struct device *device;
    assert_ok(device_open(&device, "cuda"));
    if (!genuine.cuInit)
        genuine = cu;
    return device;
}

/* Finds the libraries, so that a function can be replaced before the device is opened by something else. */
static inline void find_libraries(void)
{
    device_close(open_device());
}

/* --- y = x + d, then z = x + y: two launches of one kernel ------------------------------------------------------------------ */

enum { SUMS = 1000 };

struct sums {
    struct device *device;
    int32_t block;
    struct prepared *prepared;
    float z[SUMS]; /* as read back */
};

static inline struct command launch_add(int32_t block, int64_t x, int64_t d, int64_t y)
{
    struct command c = {.kind = COMMAND_LAUNCH, .launch = {.kernel = &ops_table[OP_add]->kernel, .rows = SUMS, .block = 1}};
    for (int i = 0; i < OPERANDS; i++)
        c.operand[i].block = -1;
    c.operand[0] = (struct operand){block, x};
    c.operand[1] = (struct operand){block, d};
    c.operand[2] = (struct operand){block, y};
    return c;
}

static inline enum status try_sums(struct sums *s, struct device *device)
{
    *s = (struct sums){.device = device};
    TRY(device_alloc(device, 4 * 4 * SUMS, &s->block));
    struct command commands[] = {launch_add(s->block, 0, 4 * SUMS, 8 * SUMS), launch_add(s->block, 0, 8 * SUMS, 12 * SUMS)};
    return device_prepare(device, commands, 2, &s->prepared);
}

static inline void prepare_sums(struct sums *s, struct device *device)
{
    assert_ok(try_sums(s, device));
}

static inline void run_sums(struct sums *s, float from)
{
    float x[2 * SUMS];
    for (int i = 0; i < SUMS; i++) {
        x[i] = from + (float)i;
        x[SUMS + i] = 0.25f * (float)i;
    }
    assert_ok(device_write(s->device, (struct operand){s->block, 0}, DTYPE_F32, x, DTYPE_F32, 2 * SUMS));
    assert_ok(device_run(s->device, s->prepared));
    assert_ok(device_read(s->device, s->z, (struct operand){s->block, 12 * SUMS}, sizeof s->z));
    for (int i = 0; i < SUMS; i++)
        assert_float_equal(s->z[i], 2 * x[i] + x[SUMS + i], 0);
}

static inline void drop_sums(struct sums *s)
{
    device_discard(s->device, s->prepared);
    device_close(s->device);
}

#endif
