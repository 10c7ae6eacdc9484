/* Large float32 matmuls by CLBlast, where it is installed; the tiled kernel does all others.
 *
 * CLBlast works on copies of operands that it pads and transposes. Their memory is the matmul's workspace, a value of the plan
 * like any other, passed to it as a buffer: it allocates nothing. It compiles its kernels at their first use, so each shape is
 * run once while a list is prepared.
 */
#include "device/opencl.h"

#include <stdlib.h>

#include "base/code.h"
#include "base/library.h"
#include "base/number.h"

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

/* Below FROM multiplications the tiled kernel is as fast. A workspace beyond WORKSPACE_MAX would cost more than it gains. Longer
 * sums than LONGEST, over a vocabulary for example, lose digits: CLBlast adds them up in one chain, the tiled kernel in pieces.
 */
enum { FROM = 1 << 22, WORKSPACE_MAX = 256 << 20, LONGEST = 1 << 15 };

static struct {
    int (*workspace)(int layout, int a_form, int b_form, size_t m, size_t n, size_t k, size_t a_offset, size_t a_row,
                     size_t b_offset, size_t b_row, size_t c_offset, size_t c_row, cl_command_queue *queue, size_t *bytes);
    int (*product)(int layout, int a_form, int b_form, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t a_offset,
                   size_t a_row, cl_mem b, size_t b_offset, size_t b_row, float beta, cl_mem c, size_t c_offset, size_t c_row,
                   cl_command_queue *queue, cl_event *event, cl_mem workspace);
    int (*forget)(void);
} clblast;

/* Its codes below zero are OpenCL's. */
static enum status opencl_gemm_check(int code, const char *what)
{
    return code < 0 && code > -64 ? opencl_check(code, what) : code ? fail(ERR_DEVICE, "CLBlast: %s: error %d", what, code) : OK;
}

void opencl_gemm_open(struct opencl *o)
{
    const char *own = code_variable("HONE_CLBLAST_LIBRARY"), *from = getenv("HONE_CLBLAST_FROM"), *why;
    const char *const names[] = {own ? own : "libclblast.so.1", NULL};
    o->clblast_from = INT64_MAX;
    void *library = library_open(names, &why);
    if (!library)
        return;
    *(void **)&clblast.workspace = library_symbol(library, "CLBlastSGemmTempBufferSize");
    *(void **)&clblast.product = library_symbol(library, "CLBlastSgemmWithTempBuffer");
    *(void **)&clblast.forget = library_symbol(library, "CLBlastClearCache");
    if (clblast.workspace && clblast.product && clblast.forget)
        o->clblast_from = from && *from ? strtoll(from, NULL, 10) : FROM;
}

/* It keeps programs by their context's address, which the next context may have. */
void opencl_gemm_close(struct opencl *o)
{
    if (o->clblast_from < INT64_MAX)
        clblast.forget();
    memory_free(o->products);
}

/* Asks with an offset, as nearly all operands have one: only then are all copies made, so this is the max that is needed. */
static enum status ask_workspace(struct opencl *o, const struct gemm *g, int64_t *bytes)
{
    size_t needed = 0;
    TRY(opencl_gemm_check(clblast.workspace(ROW_MAJOR, g->transpose_a ? TRANSPOSED : PLAIN, g->transpose_b ? TRANSPOSED : PLAIN,
                                            (size_t)g->m, (size_t)g->n, (size_t)g->k, 1, (size_t)gemm_lda(g), 1,
                                            (size_t)gemm_ldb(g), 1, (size_t)gemm_ldc(g), &o->queue, &needed),
                          "asking for a matmul's workspace"));
    *bytes = needed > WORKSPACE_MAX ? -1 : needed ? (int64_t)needed + o->alignment : 0;
    return OK;
}

static bool large(const struct opencl *o, const struct gemm *g)
{
    int64_t work;
    return g->a == DTYPE_F32 && g->b == DTYPE_F32 && g->c == DTYPE_F32 && g->m <= INT32_MAX && g->n <= INT32_MAX &&
           g->k <= LONGEST && !__builtin_mul_overflow(g->m * g->n, g->k, &work) && work >= o->clblast_from && work > 0;
}

enum status opencl_gemm_query(struct opencl *o, const struct gemm *g, bool *takes, int64_t *workspace)
{
    *workspace = 0;
    *takes = large(o, g);
    if (*takes)
        TRY(ask_workspace(o, g, workspace));
    if (*workspace < 0) {
        *takes = false;
        *workspace = 0;
    }
    return OK;
}

static struct opencl_operand opencl_gemm_place(const struct opencl *o, struct operand at)
{
    return (struct opencl_operand){o->blocks[at.block], (size_t)at.offset / sizeof(float)};
}

/* A shape that has run before has nothing left to compile. */
static enum status opencl_gemm_warm_up(struct opencl *o, const struct opencl_product *p)
{
    for (int64_t i = 0; i < o->product_count; i++) {
        const struct gemm *g = &o->products[i];
        if (g->m == p->gemm.m && g->n == p->gemm.n && g->k == p->gemm.k && g->transpose_a == p->gemm.transpose_a &&
            g->transpose_b == p->gemm.transpose_b && g->lda == p->gemm.lda && g->ldb == p->gemm.ldb && g->ldc == p->gemm.ldc)
            return OK;
    }
    TRY(memory_grow(&o->products, &o->product_capacity, o->product_count + 1, (int64_t)sizeof *o->products));
    o->products[o->product_count++] = p->gemm;
    return opencl_gemm_run(o, p);
}

enum status opencl_gemm_prepare(struct opencl *o, const struct command *command, struct opencl_product *p)
{
    int64_t bytes;
    struct operand at = command->operand[GEMM_WORKSPACE];
    *p = (struct opencl_product){.gemm = command->gemm,
                                 .a = opencl_gemm_place(o, command->operand[GEMM_A]),
                                 .b = opencl_gemm_place(o, command->operand[GEMM_B]),
                                 .c = opencl_gemm_place(o, command->operand[GEMM_C])};
    TRY(ask_workspace(o, &p->gemm, &bytes));
    if (bytes) {
        cl_int code;
        int64_t begin = round_up(at.offset, o->alignment);
        size_t region[] = {(size_t)begin, (size_t)(at.offset + bytes - begin)};
        p->workspace = cl.clCreateSubBuffer(o->blocks[at.block], CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, region, &code);
        TRY(opencl_check(code, "a matmul's workspace"));
    }
    return opencl_gemm_warm_up(o, p);
}

void opencl_gemm_discard(struct opencl_product *p)
{
    if (p->workspace)
        cl.clReleaseMemObject(p->workspace);
}

enum status opencl_gemm_run(struct opencl *o, const struct opencl_product *p)
{
    const struct gemm *g = &p->gemm;
    return opencl_gemm_check(clblast.product(ROW_MAJOR, g->transpose_a ? TRANSPOSED : PLAIN, g->transpose_b ? TRANSPOSED : PLAIN,
                                             (size_t)g->m, (size_t)g->n, (size_t)g->k, (float)g->alpha, p->a.block, p->a.offset,
                                             (size_t)gemm_lda(g), p->b.block, p->b.offset, (size_t)gemm_ldb(g),
                                             g->accumulate ? 1 : 0, p->c.block, p->c.offset, (size_t)gemm_ldc(g), &o->queue, NULL,
                                             p->workspace),
                             "a matmul");
}
