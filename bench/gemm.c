/* The matmuls of a LoRA training step of SmolLM2-135M (r = 16 on all linear layers, 4 x 256 tokens): each by hone's engine, next
 * to the same matmul by only oneDNN with the layouts that it likes best, the weights packed beforehand.
 *
 *     gemm bfloat16|float32 [threads] [rounds]
 *
 * Both are run in turns. The table has a matmul's time in a step, sorted by what hone loses of it. One thread's times are
 * processor time, which other programs of the machine disturb less than time by the clock. */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "base/parallel.h"
#include "device/cpu.h"

void omp_set_num_threads(int threads);

#if DNNL_VERSION_MAJOR >= 3
#error "the bench is written for oneDNN 2"
#endif

enum { T = 1024, C = 576, K = 192, F = 1536, V = 49152, L = 30, LOW = 16, CHUNK = 160, ROUNDS_MAX = 99, PRODUCTS_MAX = 64 };

struct product {
    const char *name;
    struct gemm gemm;
    double count; /* in a step */
    double hone, bare, ratio;
};

static struct product products[PRODUCTS_MAX];
static int product_count;

static void add(const char *name, enum dtype from, enum dtype to, double count, struct gemm g)
{
    for (int i = 0; i < product_count; i++)
        if (!strcmp(products[i].name, name) && products[i].gemm.m == g.m && products[i].gemm.n == g.n &&
            products[i].gemm.k == g.k) {
            products[i].count += count;
            return;
        }
    g.a = g.b = from;
    g.c = to;
    g.alpha = 1;
    products[product_count++] = (struct product){name, g, count, 0, 0, 0};
}

static void add_linear(enum dtype type, int64_t in, int64_t out)
{
    add("x · aᵀ", type, type, L, (struct gemm){.m = T, .n = LOW, .k = in, .transpose_b = true});
    add("low · bᵀ", type, type, L, (struct gemm){.m = T, .n = out, .k = LOW, .transpose_b = true});
    add("x · wᵀ", type, type, L, (struct gemm){.m = T, .n = out, .k = in, .transpose_b = true, .accumulate = true});
    add("dy · b", type, type, L, (struct gemm){.m = T, .n = LOW, .k = out});
    add("dyᵀ · low", type, DTYPE_F32, L, (struct gemm){.m = out, .n = LOW, .k = T, .transpose_a = true, .accumulate = true});
    add("dlowᵀ · x", type, DTYPE_F32, L, (struct gemm){.m = LOW, .n = in, .k = T, .transpose_a = true, .accumulate = true});
    add("dlow · a", type, DTYPE_F32, L, (struct gemm){.m = T, .n = in, .k = LOW, .accumulate = true});
    add("dy · w", type, DTYPE_F32, L, (struct gemm){.m = T, .n = in, .k = out, .accumulate = true});
}

static double now(bool one)
{
    struct timespec t;
    clock_gettime(one ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s failed: %s\n", what, status_message());
        exit(1);
    }
}

static dnnl_data_type_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? dnnl_f32 : dnnl_bf16;
}

struct bare {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[3];
};

/* A and C as they lie in memory, B as oneDNN likes it. */
static void bare_open(struct bare *bare, dnnl_engine_t engine, const struct gemm *g, void *const address[GEMM_OPERANDS])
{
    dnnl_memory_desc_t desc[3];
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post;
    dnnl_memory_desc_init_by_strides(&desc[0], 2, (dnnl_dims_t){g->m, g->k}, type_of(g->a),
                                     (dnnl_dims_t){g->transpose_a ? 1 : g->k, g->transpose_a ? g->m : 1});
    dnnl_memory_desc_init_by_tag(&desc[1], 2, (dnnl_dims_t){g->k, g->n}, type_of(g->b), dnnl_format_tag_any);
    dnnl_memory_desc_init_by_strides(&desc[2], 2, (dnnl_dims_t){g->m, g->n}, type_of(g->c), (dnnl_dims_t){g->n, 1});
    dnnl_primitive_attr_create(&attributes);
    dnnl_post_ops_create(&post);
    if (g->accumulate)
        dnnl_post_ops_append_sum(post, 1);
    dnnl_primitive_attr_set_post_ops(attributes, post);
    check(dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]) == dnnl_success, "describing a matmul");
    check(dnnl_primitive_desc_create(&pd, &matmul, attributes, engine, NULL) == dnnl_success, "choosing a matmul");
    check(dnnl_primitive_create(&bare->primitive, pd) == dnnl_success, "making a matmul");
    static const int argument[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    for (int i = 0; i < 3; i++) {
        bare->args[i].arg = argument[i];
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd,
                                                                    i == 0   ? dnnl_query_src_md
                                                                    : i == 1 ? dnnl_query_weights_md
                                                                             : dnnl_query_dst_md,
                                                                    0);
        dnnl_memory_create(&bare->args[i].memory, md, engine, i == 1 ? DNNL_MEMORY_ALLOCATE : address[i]);
    }
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_primitive_desc_destroy(pd);
}

static void bare_close(struct bare *bare)
{
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(bare->args[i].memory);
    dnnl_primitive_destroy(bare->primitive);
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, by_number);
    return numbers[count / 2];
}

static void measure(struct product *p, void *state, dnnl_engine_t engine, dnnl_stream_t stream, int threads, int rounds)
{
    const struct gemm *g = &p->gemm;
    int64_t workspace = 0, bytes[GEMM_OPERANDS] = {g->m * g->k * dtype_size(g->a), g->k * g->n * dtype_size(g->b),
                                                   g->m * g->n * dtype_size(g->c)};
    struct gemm_plan *plan;
    struct bare bare;
    void *address[GEMM_OPERANDS] = {0};
    double hone[ROUNDS_MAX], other[ROUNDS_MAX], ratio[ROUNDS_MAX];
    check(gemm_onednn.create(state, g, &plan, &workspace) == OK, "making hone's matmul");
    bytes[GEMM_WORKSPACE] = workspace;
    for (int i = 0; i < GEMM_OPERANDS; i++)
        if (bytes[i]) {
            address[i] = aligned_alloc(4096, (size_t)round_up(bytes[i], 4096));
            check(address[i], "allocating");
            memset(address[i], 0, (size_t)bytes[i]);
        }
    bare_open(&bare, engine, g, address);
    int repeats = (int)max(1, (int64_t)(2e9 / (2.0 * (double)g->m * (double)g->n * (double)g->k)));
    for (int r = -1; r < rounds; r++) { /* the first is not counted */
        double t0 = now(threads == 1);
        for (int i = 0; i < repeats; i++)
            check(gemm_onednn.run(plan, address) == OK, "hone's matmul");
        double t1 = now(threads == 1);
        omp_set_num_threads(threads);
        for (int i = 0; i < repeats; i++)
            check(dnnl_primitive_execute(bare.primitive, stream, 3, bare.args) == dnnl_success, "oneDNN's matmul");
        double t2 = now(threads == 1);
        if (r >= 0) {
            hone[r] = (t1 - t0) / repeats;
            other[r] = (t2 - t1) / repeats;
            ratio[r] = hone[r] / other[r];
        }
    }
    p->hone = median(hone, rounds);
    p->bare = median(other, rounds);
    p->ratio = median(ratio, rounds);
    bare_close(&bare);
    gemm_onednn.destroy(plan);
    for (int i = 0; i < GEMM_OPERANDS; i++)
        free(address[i]);
}

static double lost(const struct product *p)
{
    return p->count * (p->hone - p->bare);
}

static int by_loss(const void *a, const void *b)
{
    return (lost(a) < lost(b)) - (lost(a) > lost(b));
}

int main(int count, char **arguments)
{
    enum dtype type = count > 1 && !strcmp(arguments[1], "float32") ? DTYPE_F32 : DTYPE_BF16;
    int threads = count > 2 ? atoi(arguments[2]) : parallel_threads();
    int rounds = count > 3 ? (int)min(atoi(arguments[3]), ROUNDS_MAX) : 5;
    static const int64_t linear[][2] = {{C, C}, {C, K}, {C, K}, {C, C}, {C, F}, {C, F}, {F, C}};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void *state;
    for (int i = 0; i < 7; i++)
        add_linear(type, linear[i][0], linear[i][1]);
    add("head", type, DTYPE_F32, (double)T / CHUNK, (struct gemm){.m = CHUNK, .n = V, .k = C, .transpose_b = true});
    add("dlogits · w", type, type, (double)T / CHUNK, (struct gemm){.m = CHUNK, .n = C, .k = V});
    parallel_set_threads(threads);
    omp_set_num_threads(threads);
    check(gemm_onednn.open(&state) == OK, "oneDNN");
    check(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success, "oneDNN");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success, "oneDNN");
    double hone = 0, bare = 0;
    for (int i = 0; i < product_count; i++) {
        measure(&products[i], state, engine, stream, threads, rounds);
        hone += products[i].count * products[i].hone;
        bare += products[i].count * products[i].bare;
    }
    qsort(products, (size_t)product_count, sizeof *products, by_loss);
    printf("%-12s %6s %6s %6s %6s %9s %9s %7s %9s %8s\n", "", "m", "n", "k", "count", "hone ms", "bare ms", "ratio", "GFLOP/s",
           "lost ms");
    for (int i = 0; i < product_count; i++) {
        const struct product *p = &products[i];
        const struct gemm *g = &p->gemm;
        double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
        printf("%-12s %6d %6d %6d %6.1f %9.3f %9.3f %7.2f %9.1f %8.1f\n", p->name, (int)g->m, (int)g->n, (int)g->k, p->count,
               1e3 * p->hone, 1e3 * p->bare, p->ratio, 1e-9 * flops / p->hone, 1e3 * lost(p));
    }
    printf("a step: hone %.0f ms, oneDNN %.0f ms\n", 1e3 * hone, 1e3 * bare);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    gemm_onednn.close(state);
    return 0;
}
