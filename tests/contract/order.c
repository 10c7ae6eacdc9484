/* When memory is taken: code is loaded and everything has run once while the card's memory is still free. */
#include "contract.h"
#include "trainer_rig.h"

enum { MAX = 4096 };

static struct block {
    CUdeviceptr address;
    int moment;
    bool freed;
} blocks[MAX];

static struct first { /* the first run of a kernel, or of a shape of a matmul, outside of captures */
    const void *function;
    int shape[9];
    int moment;
} firsts[MAX];

static int moment, block_count, first_count, last_load, loads, captured, cold;
static CUresult see_load(CUmodule *module, const void *image)
{
    last_load = ++moment;
    loads++;
    return genuine.cuModuleLoadData(module, image);
}

static CUresult see_alloc(CUdeviceptr *address, size_t bytes)
{
    CUresult code = genuine.cuMemAlloc(address, bytes);
    assert_true(block_count < MAX);
    blocks[block_count++] = (struct block){*address, ++moment, false};
    return code;
}

static CUresult see_free(CUdeviceptr address)
{
    for (int i = 0; i < block_count; i++)
        blocks[i].freed |= blocks[i].address == address;
    return genuine.cuMemFree(address);
}

/* The moment of the first block that stays. */
static int first_block(CUdeviceptr workspace)
{
    for (int i = 0; i < block_count; i++)
        if (!blocks[i].freed && blocks[i].address != workspace)
            return blocks[i].moment;
    return 0;
}

/* Notes a first run; in a capture, asks whether there was one. */
static void see_run(const void *function, const int shape[9])
{
    int i = 0;
    while (i < first_count && (firsts[i].function != function || memcmp(firsts[i].shape, shape, sizeof firsts[i].shape) != 0))
        i++;
    if (capturing) {
        captured++;
        cold += i == first_count;
    } else if (i == first_count) {
        assert_true(first_count < MAX);
        firsts[first_count].function = function;
        memcpy(firsts[first_count].shape, shape, sizeof firsts[i].shape);
        firsts[first_count++].moment = ++moment;
    }
}

static CUresult see_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, CUstream stream, void **arguments, void **extra)
{
    see_run((const void *)function, (const int[9]){0});
    return genuine.cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}

static cublasStatus_t see_product(cublasHandle_t handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                                  const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                                  void *c, int type_c, int ldc, int compute, int algorithm)
{
    see_run(NULL, (const int[9]){operation_a, operation_b, m, n, k, type_a, type_c, *(const float *)beta != 0, compute});
    return genuine.cublasGemmEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c,
                                ldc, compute, algorithm);
}

static void check_order(const char *method)
{
    struct rig r;
    find_libraries();
    moment = block_count = first_count = last_load = loads = captured = cold = 0;
    cu.cuModuleLoadData = see_load;
    cu.cuMemAlloc = see_alloc;
    cu.cuMemFree = see_free;
    cu.cuLaunchKernel = see_launch;
    cu.cublasGemmEx = see_product;
    cu.cuStreamBeginCapture = see_begin;
    cu.cuStreamEndCapture = see_end;
    open_rig(&r, &tied, 0, SETTINGS("device", "cuda", "finetuning_type", method));
    int block = first_block(((struct cuda *)r.t.build.session.device)->workspace);
    assert_true(block > 0 && loads > 10 && captured > 40);
    if (last_load > block)
        fail_msg("%s: code was loaded after the first block was allocated", method);
    for (int i = 0; i < first_count; i++)
        if (firsts[i].moment > block)
            fail_msg("%s: %s of %d x %d x %d ran for the first time after the first block was allocated", method,
                     firsts[i].function ? "a kernel" : "a matmul", firsts[i].shape[2], firsts[i].shape[3], firsts[i].shape[4]);
    if (cold)
        fail_msg("%s: %d of %d captured commands had not run before", method, cold, captured);
    cu = genuine;
    close_rig(&r);
}

static void code_is_loaded_and_has_run_before_blocks_are_allocated(void **state)
{
    (void)state;
    check_order("lora");
    check_order("qlora");
    check_order("full");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CONTRACT("code-is-loaded-before-blocks-are-allocated", code_is_loaded_and_has_run_before_blocks_are_allocated),
    };
    return CONTRACT_MAIN(tests, make_models, remove_models);
}
