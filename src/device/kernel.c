/* Texts, options and grids of kernels. */
#include "device/kernel.h"

#include <stdio.h>

#include "base/number.h"
#include "device/kernel_signatures.h"

/* Made by the build from dialect.h and the .kl files of src/device and src/ops: names and texts in turn, then NULL. */
extern const char *const kernel_texts[];

enum { WIDTH_MIN = 32 };

const char *kernel_text(const char *file)
{
    for (const char *const *text = kernel_texts; *text; text += 2)
        if (!strcmp(text[0], file))
            return text[1];
    return NULL;
}

static const char *type_name(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bf16" : dtype == DTYPE_F16 ? "f16" : dtype == DTYPE_I32 ? "i32" : "f32";
}

void kernel_options(char text[KERNEL_OPTIONS], const struct command *command)
{
    const struct launch *launch = &command->launch;
    const struct kernel *kernel = launch->kernel;
    int at = snprintf(text, KERNEL_OPTIONS, "-DONLY_%s -DGROUP=%d", kernel->name, kernel->group);
    if (kernel->has_width) {
        int64_t width = WIDTH_MIN, dim = launch->dim[kernel->width];
        while (width < dim && !kernel->multiple)
            width *= 2;
        if (kernel->multiple)
            width = round_up(dim, kernel->multiple);
        at += snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), " -DWIDTH=%lld", (long long)width);
    }
    for (int i = 0; i < kernel->operands; i++) /* at most 12 operands, 24 bytes each: they fit */
        at += snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), " -DTYPE_%d=%s -DHAS_%d=%d", i, type_name(launch->dtype[i]), i,
                       command->operand[i].block >= 0);
    snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), "%s", kernel->defines ? kernel->defines : "");
}

int64_t kernel_groups(const struct launch *launch)
{
    return divide_up(launch->rows, launch->kernel->rows);
}

/* A work-group computes DOWN x ACROSS squares of TILE x TILE results, with a work-item for each place in a square; both numbers
 * are constants of gemm.kl. DOWN is small for matmuls with few rows: decoding, and gradients of low-rank factors. */
#define ACROSS 4
#define GEMM(name, tile, down)                                                                                                   \
    {                                                                                                                            \
        tile, down,                                                                                                              \
        {                                                                                                                        \
            SIGNATURE_##name, .group = (tile) * (tile), .rows = 1,                                                               \
                              .defines = " -DTILE=" DEFINE_TEXT(tile) " -DDOWN=" DEFINE_TEXT(down) DEFINE(ACROSS)                \
        }                                                                                                                        \
    }
#define GEMMS_OF(name)                                                                                                           \
    GEMM(name, 8, 1), GEMM(name, 8, 4), GEMM(name, 16, 1), GEMM(name, 16, 4), GEMM(name, 32, 1), GEMM(name, 32, 4)

enum { GEMMS = 6 };

static const struct tiled {
    int tile, down;
    struct kernel kernel;
} gemms[GEMMS] = {GEMMS_OF(gemm)}, gemms_processor[GEMMS] = {GEMMS_OF(gemm_processor)};

void kernel_of_gemm(struct command *command, const struct command *gemm, int tile, bool processor)
{
    const struct gemm *g = &gemm->gemm;
    const struct tiled *chosen = processor ? gemms_processor : gemms, *last = chosen + GEMMS - 1;
    tile = tile ? tile : KERNEL_TILE;
    while (chosen < last && (chosen->tile < tile || (chosen->down == 1 && g->m > tile)))
        chosen++;
    int64_t rows = chosen->tile * chosen->down, columns = chosen->tile * ACROSS;
    *command = (struct command){
        .kind = COMMAND_LAUNCH,
        .launch = {.kernel = &chosen->kernel,
                   .dtype = {g->a, g->b, g->c, g->b},
                   .dim = {g->m, g->n, g->k, g->transpose_a + 2 * g->transpose_b + 4 * g->accumulate, gemm_lda(g), gemm_ldb(g),
                           gemm_ldc(g)},
                   .number = {g->alpha},
                   .rows = divide_up(g->m, rows) * divide_up(g->n, columns),
                   .block = 1},
    };
    memcpy(command->operand, gemm->operand, sizeof command->operand);
    if (!g->bias)
        command->operand[GEMM_BIAS].block = -1;
}

int64_t kernel_bias_workspace(const struct gemm *gemm)
{
    return gemm->bias && gemm->c != DTYPE_F32 ? gemm->m * gemm->n * dtype_size(DTYPE_F32) : 0;
}

void kernel_of_bias(struct command *launch, struct command *product, const struct command *gemm)
{
    static const struct kernel kernel = {SIGNATURE_gemm_bias, .group = 256, .rows = 256};
    const struct gemm *g = &gemm->gemm;
    bool in_place = g->c == DTYPE_F32;
    *product = *gemm;
    product->gemm.bias = false;
    product->operand[GEMM_BIAS].block = -1;
    if (!in_place) {
        product->gemm.c = DTYPE_F32;
        product->gemm.accumulate = false;
        product->gemm.ldc = 0;
        product->operand[GEMM_C] = gemm->operand[GEMM_WORKSPACE];
    }
    *launch = (struct command){
        .kind = COMMAND_LAUNCH,
        .operand = {product->operand[GEMM_C], gemm->operand[GEMM_BIAS], gemm->operand[GEMM_C]},
        .launch = {.kernel = &kernel,
                   .dtype = {DTYPE_F32, g->b, g->c},
                   .dim = {g->n, g->accumulate && !in_place, gemm_ldc(&product->gemm), gemm_ldc(g)},
                   .rows = g->m * g->n,
                   .block = 1},
    };
}
