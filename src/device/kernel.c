/* Texts, options and grids of kernels. */
#include "device/kernel.h"

#include <stdio.h>

/* Made by the build from src/ops/dialect.h and the .kl files beside it: names and texts in turn, then NULL. */
extern const char *const kernel_texts[];

#define TILE_N 64                       /* columns of a product that a work-group makes; gemm.kl is told */

enum { WIDTH_LEAST = 32 };

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
    if (kernel->width) {
        int64_t width = WIDTH_LEAST;
        while (width < launch->dim[kernel->width - 1])
            width *= 2;
        at += snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), " -DWIDTH=%lld", (long long)width);
    }
    for (int i = 0; i < kernel->operands; i++)          /* 12 operands at most, 24 bytes each: they fit */
        at += snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), " -DTYPE_%d=%s -DHAS_%d=%d", i, type_name(launch->dtype[i]), i,
                       command->operand[i].block >= 0);
    snprintf(text + at, (size_t)(KERNEL_OPTIONS - at), "%s", kernel->defines ? kernel->defines : "");
}

int64_t kernel_groups(const struct launch *launch)
{
    return (launch->rows + launch->kernel->rows - 1) / launch->kernel->rows;
}

/* Tiles of few rows for products with few of them: decoding, and gradients of low-rank factors. */
#define GEMM(tile_m)                                                                                                             \
    {"gemm", NULL, .file = "gemm", .operands = 3, .sizes = 6, .group = 256, .rows = 1,                                           \
     .defines = DEFINE(TILE_N) " -DTILE_M=" DEFINE_TEXT(tile_m)}

static const struct kernel gemm_tall = GEMM(64), gemm_flat = GEMM(16);

void kernel_of_gemm(struct command *command, const struct command *gemm)
{
    const struct gemm *g = &gemm->gemm;
    bool flat = g->m <= 16;
    int64_t tiles_m = (g->m + (flat ? 15 : 63)) / (flat ? 16 : 64), tiles_n = (g->n + TILE_N - 1) / TILE_N;
    *command = (struct command){
        .kind = COMMAND_LAUNCH,
        .launch = {.kernel = flat ? &gemm_flat : &gemm_tall,
                   .dtype = {g->a, g->b, g->c},
                   .dim = {g->m, g->n, g->k, g->transpose_a, g->transpose_b, g->accumulate},
                   .rows = tiles_m * tiles_n,
                   .block = 1},
    };
    memcpy(command->operand, gemm->operand, sizeof command->operand);
}
