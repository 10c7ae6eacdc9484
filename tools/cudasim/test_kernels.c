/* The simulator executes what NVRTC made of small kernels, and the results are those of the same computation in C. */
#include "test.h"

#include <math.h>

#include "half.h"

static void assert_near(double got, double expected, double tolerance, const char *what, int i)
{
    if (!(fabs(got - expected) <= tolerance * (1 + fabs(expected))) && !(isnan(got) && isnan(expected)) && got != expected) {
        print_error("%s[%d]: %.9g, expected %.9g\n", what, i, got, expected);
        _fail(__FILE__, __LINE__);
    }
}

static void vector_add_with_64_bit_offsets(void **unused)
{
    (void)unused;
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (uint32_t i = 0; i < N; i++) {
        a[i] = noise(i);
        b[i] = noise(i + N);
    }
    CUfunction f = kernel("vector_add", "vector_add");
    long long n = N, base = (1ll << 31) + 5; /* elements: the bytes lie beyond 2^33 */
    size_t bytes = (size_t)(base + N) * sizeof(float);
    setenv("CUDASIM_MEMORY", "68719476736", 1);
    CUdeviceptr pa = device_new(NULL, bytes), pb = device_new(NULL, bytes), pc = device_new(NULL, bytes);
    assert_ok(cuMemcpyHtoD_v2(pa + (size_t)base * 4, a, sizeof a));
    assert_ok(cuMemcpyHtoD_v2(pb + (size_t)base * 4, b, sizeof b));
    assert_ok(launch(f, 4, 256, ARGS(&pc, &pa, &pb, &n, &base)));
    read_back(c, pc + (size_t)base * 4, sizeof c);
    for (int i = 0; i < N; i++)
        assert_true(c[i] == a[i] + b[i]);
}

static void bf16_by_shifts_and_by_hardware(void **unused)
{
    (void)unused;
    enum { N = 600 };
    uint16_t x[N], y[N], h[N], v[N];
    float values[N], back[N];
    uint32_t pair[N], fused[N];
    for (int i = 0; i < N; i++) {
        values[i] = noise((uint32_t)i) * powf(2, (float)(i % 60 - 30));
        x[i] = bf16_of_float(values[i]);
    }
    values[0] = NAN;
    values[1] = INFINITY;
    values[2] = 65520;
    values[3] = 1e-9f;
    values[4] = 1 + 0x1p-11f; /* halves between two float16 go to the even one */
    values[5] = 1 + 0x3p-11f;
    values[6] = 0x1p-25f;
    values[7] = -0x3p-25f;
    int n = N;
    float scale = 1.7f;
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y), pv = device_new(values, sizeof values);
    CUdeviceptr pb = device_new(NULL, sizeof back), pp = device_new(NULL, sizeof pair), pf = device_new(NULL, sizeof fused);
    assert_ok(launch(kernel("bfloat", "bf16_scale"), 3, 256, ARGS(&py, &px, &scale, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i], bf16_of_float(float_of_bf16(x[i]) * scale));
    assert_ok(launch(kernel("bfloat", "bf16_hardware"), 3, 256, ARGS(&py, &pb, &pv, &n)));
    read_back(h, py, sizeof h);
    read_back(back, pb, sizeof back);
    for (int i = 0; i < N; i++) {
        assert_int_equal(h[i], bf16_of_float(values[i]));
        assert_near((double)back[i], (double)float_of_bf16(h[i]), 0, "back", i);
    }
    assert_ok(launch(kernel("bfloat", "half_forms"), 3, 256, ARGS(&py, &pb, &pp, &pf, &pv, &n)));
    read_back(v, py, sizeof v);
    read_back(back, pb, sizeof back);
    read_back(pair, pp, sizeof pair);
    read_back(fused, pf, sizeof fused);
    assert_int_equal(v[1], 0x7c00);
    assert_int_equal(v[2], 0x7c00);
    assert_int_equal(v[3], 0);
    assert_int_equal(v[4], 0x3c00);
    assert_int_equal(v[5], 0x3c02);
    assert_int_equal(v[6], 0);
    assert_int_equal(v[7], 0x8002);
    for (int i = 4; i < N; i++) {
        if (fabsf(values[i]) < 60000 && fabsf(values[i]) > 1e-4f)
            assert_near((double)back[i], (double)values[i], 0x1p-11, "f16", i);
        float high = float_of_bf16((uint16_t)(pair[i] >> 16));
        assert_int_equal(pair[i] >> 16, bf16_of_float(values[i]));
        assert_int_equal(fused[i] >> 16, bf16_of_float((float)((double)high * (double)high + (double)high)));
    }
}

static void row_sums_by_a_tree_in_shared_memory(void **unused)
{
    (void)unused;
    enum { ROWS = 5, C = 777 };
    static float x[ROWS * C];
    float y[ROWS];
    int columns = C;
    for (uint32_t i = 0; i < ROWS * C; i++)
        x[i] = noise(i);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y);
    assert_ok(launch(kernel("reduce", "row_sum"), ROWS, 256, ARGS(&py, &px, &columns)));
    read_back(y, py, sizeof y);
    for (int r = 0; r < ROWS; r++) {
        float part[256] = {0};
        for (int c = 0; c < C; c++)
            part[c % 256] += x[r * C + c];
        for (int half = 128; half; half >>= 1)
            for (int i = 0; i < half; i++)
                part[i] += part[i + half];
        assert_near((double)y[r], (double)part[0], 1e-6, "sum", r);
    }
}

static void warp_shuffles_votes_and_masks(void **unused)
{
    (void)unused;
    enum { N = 96 };
    float x[N], sum[N], scan[N], first[N], next[N];
    uint32_t vote[N];
    for (uint32_t i = 0; i < N; i++)
        x[i] = noise(i);
    CUdeviceptr p[6];
    for (int i = 0; i < 6; i++)
        p[i] = device_new(i == 5 ? x : NULL, sizeof x);
    assert_ok(launch(kernel("warp", "warp_forms"), 1, N, ARGS(&p[0], &p[1], &p[2], &p[3], &p[4], &p[5])));
    read_back(sum, p[0], sizeof sum);
    read_back(scan, p[1], sizeof scan);
    read_back(first, p[2], sizeof first);
    read_back(next, p[3], sizeof next);
    read_back(vote, p[4], sizeof vote);
    for (int w = 0; w < N; w += 32) {
        double total = 0;
        uint32_t ballot = 0;
        for (int i = 0; i < 32; i++)
            ballot |= (uint32_t)(x[w + i] > 0.5f) << i;
        for (int i = 0; i < 32; i++) {
            total += (double)x[w + i];
            assert_near((double)scan[w + i], total, 1e-5, "scan", w + i);
            assert_true(first[w + i] == x[w] && next[w + i] == x[w + (i < 31 ? i + 1 : i)]);
            assert_int_equal(vote[w + i], ballot + 32);
        }
        for (int i = 0; i < 32; i++)
            assert_near((double)sum[w + i], total, 1e-5, "sum", w + i);
    }
}

static void softmax_by_ex2_and_lg2(void **unused)
{
    (void)unused;
    enum { ROWS = 3, C = 300 };
    static float x[ROWS * C], y[ROWS * C];
    float lse[ROWS];
    int columns = C;
    for (uint32_t i = 0; i < ROWS * C; i++)
        x[i] = 10 * noise(i);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y), pl = device_new(NULL, sizeof lse);
    assert_ok(launch(kernel("softmax", "softmax"), ROWS, 128, ARGS(&py, &pl, &px, &columns)));
    read_back(y, py, sizeof y);
    read_back(lse, pl, sizeof lse);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < C; c++)
            sum += exp((double)x[r * C + c]);
        assert_near((double)lse[r], log(sum), 1e-6, "lse", r);
        for (int c = 0; c < C; c++)
            assert_near((double)y[r * C + c], exp((double)x[r * C + c]) / sum, 1e-6, "softmax", r * C + c);
    }
}

static void tiled_gemm_of_odd_sizes_and_vectors_of_four(void **unused)
{
    (void)unused;
    enum { M = 45, N = 37, K = 51 };
    static float a[M * K], b[K * N], c[M * N], d[400], e[400];
    int m = M, n = N, k = K, count = 100;
    for (uint32_t i = 0; i < M * K; i++)
        a[i] = noise(i);
    for (uint32_t i = 0; i < K * N; i++)
        b[i] = noise(i + 7777);
    CUdeviceptr pa = device_new(a, sizeof a), pb = device_new(b, sizeof b), pc = device_new(NULL, sizeof c);
    CUfunction f = kernel("gemm", "gemm");
    assert_ok(cuLaunchKernel(f, (N + 15) / 16, (M + 15) / 16, 1, 256, 1, 1, 0, stream, ARGS(&pc, &pa, &pb, &m, &n, &k), NULL));
    read_back(c, pc, sizeof c);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int l = 0; l < K; l++)
                sum = fmaf(a[i * K + l], b[l * N + j], sum);
            assert_true(c[i * N + j] == sum);
        }
    for (uint32_t i = 0; i < 400; i++)
        d[i] = noise(i);
    CUdeviceptr pd = device_new(d, sizeof d), pe = device_new(NULL, sizeof e);
    assert_ok(launch(kernel("gemm", "copy4"), 1, 128, ARGS(&pe, &pd, &count)));
    read_back(e, pe, sizeof e);
    for (int i = 0; i < 400; i++)
        assert_true(e[i] == d[i / 4 * 4 + 3 - i % 4]);
}

static int switched(int v, int *r)
{
    for (int k = 0; k < (v & 7); k++) {
        switch ((v >> k) % 5) {
        case 0: *r += 3; break;
        case 1: *r ^= v; break;
        case 2: *r = (int)((unsigned)*r * 7 - (unsigned)k); continue;
        case 3:
            if (*r > 1000)
                return *r;
            *r = (int)((unsigned)*r << 1);
            break;
        default: *r -= v / (k + 1); break;
        }
        *r += k;
    }
    return *r;
}

static void lanes_diverge_and_come_together(void **unused)
{
    (void)unused;
    enum { N = 500 };
    static unsigned long long start[N];
    static int steps[N], x[N], y[N];
    int n = N;
    for (int i = 0; i < N; i++) {
        start[i] = (unsigned long long)i * 37 + 1;
        x[i] = (int)(noise((uint32_t)i) * 100000);
        x[i] = x[i] < 0 ? -x[i] : x[i];
    }
    CUdeviceptr ps = device_new(start, sizeof start), pn = device_new(NULL, sizeof steps), px = device_new(x, sizeof x);
    CUdeviceptr py = device_new(NULL, sizeof y);
    assert_ok(launch(kernel("diverge", "collatz"), 4, 128, ARGS(&pn, &ps, &n)));
    read_back(steps, pn, sizeof steps);
    for (int i = 0; i < N; i++) {
        int count = 0;
        for (unsigned long long v = start[i]; v != 1; count++)
            v = v & 1 ? 3 * v + 1 : v >> 1;
        assert_int_equal(steps[i], count);
    }
    assert_ok(launch(kernel("diverge", "switches"), 4, 128, ARGS(&py, &px, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++) {
        int r = 0, other = 0, j = i ^ 1;
        switched(x[i], &r);
        if (j < N)
            switched(x[j], &other);
        assert_int_equal(y[i], (int)((unsigned)r + (unsigned)other));
    }
}

static void philox_and_high_products(void **unused)
{
    (void)unused;
    enum { N = 300 };
    static uint32_t out[4 * N];
    static unsigned long long a[N], b[N], hi[N], q[N];
    static long long shi[N], r[N];
    unsigned long long seed = 0x123456789abcdef0ull;
    int n = N;
    CUdeviceptr po = device_new(NULL, sizeof out);
    assert_ok(launch(kernel("philox", "philox"), 3, 128, ARGS(&po, &seed, &n)));
    read_back(out, po, sizeof out);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t c[4] = {i, 0, 7, 0}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
            c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
            c[1] = (uint32_t)p1;
            c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
            c[3] = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        assert_memory_equal(c, out + 4 * i, sizeof c);
    }
    for (int i = 0; i < N; i++) {
        a[i] = ((unsigned long long)out[4 * i] << 32 | out[4 * i + 1]);
        b[i] = ((unsigned long long)out[4 * i + 2] << 32 | out[4 * i + 3]) >> (i % 50);
    }
    CUdeviceptr pa = device_new(a, sizeof a), pb = device_new(b, sizeof b), ph = device_new(NULL, sizeof a);
    CUdeviceptr ps = device_new(NULL, sizeof a);
    CUdeviceptr pq = device_new(NULL, sizeof a), pr = device_new(NULL, sizeof a);
    assert_ok(launch(kernel("philox", "wide"), 3, 128, ARGS(&ph, &ps, &pq, &pr, &pa, &pb, &n)));
    read_back(hi, ph, sizeof hi);
    read_back(shi, ps, sizeof shi);
    read_back(q, pq, sizeof q);
    read_back(r, pr, sizeof r);
    for (int i = 0; i < N; i++) {
        assert_true(hi[i] == (unsigned long long)((unsigned __int128)a[i] * b[i] >> 64));
        assert_true(shi[i] == (long long)((__int128)(long long)a[i] * (long long)b[i] >> 64));
        assert_true(q[i] == a[i] / (b[i] | 1) && r[i] == (long long)a[i] % (long long)(b[i] | 1));
    }
}

static void the_math_library_as_nvrtc_inlines_it(void **unused)
{
    (void)unused;
    enum { N = 257, K = 20 };
    static float x[N], y[N * K];
    int n = N;
    for (int i = 0; i < N; i++)
        x[i] = noise((uint32_t)i) * (i % 3 ? 4.0f : 40.0f);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y);
    assert_ok(launch(kernel("math", "math_forms"), 3, 128, ARGS(&py, &px, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++) {
        double v = (double)x[i], a = fabs(v);
        float *o = y + i * K;
        bool fast = getenv("CUDASIM_FAST") != NULL; /* PTX made with --use_fast_math */
        double t = fast ? 0.02 : 2e-6;
        double expected[K] = {
            exp(v),
            log((double)(fabsf(x[i]) + 1e-3f)),
            sin((double)(x[i] * 1000.0f)),
            cos((double)(x[i] * 1e6f)),
            tanh(v),
            erf(v),
            pow((double)(fabsf(x[i]) + 0.1f), (double)1.7f),
            1 / sqrt(a + 0.5),
            sqrt(a),
            1 / (v + 20),
            v / 3,
            exp(v),
            v / 7,
            floor(v) + ceil(v) + trunc(v) + rint(v),
            trunc((double)(x[i] * 100.0f)) + trunc(a) + trunc((double)(x[i] * 3.0f)),
            exp(v) * 1.0000001,
            copysign(3, v) + fmin(v, 0.5),
            ldexp(v, 3),
            log1p(a) + expm1((double)(x[i] * 0.1f)),
            fmod(v, (double)0.7f) + round(v),
        };
        for (int k = 0; k < K; k++)
            if (!fast || (k != 2 && k != 3))
                assert_near((double)o[k], expected[k], k == 19 && fast ? 1 : t, "math", i * 100 + k);
    }
}

static void calls_constants_variables_and_local_arrays(void **unused)
{
    (void)unused;
    enum { N = 200 };
    static float x[N], y[N];
    static int index[N];
    static const float TABLE[4] = {0.25f, -1.5f, 3.0f, 7.75f};
    int n = N;
    for (int i = 0; i < N; i++) {
        x[i] = noise((uint32_t)i);
        index[i] = i * 5;
    }
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y), pi = device_new(index, sizeof index);
    assert_ok(launch(kernel("math", "calls"), 2, 128, ARGS(&py, &px, &pi, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++) {
        double sum[2] = {0};
        for (int call = 0; call < 2; call++)
            for (int d = call ? 2 : i & 3; d >= 0; d--)
                sum[call] = sum[call] * ((double)x[i] + call) + (double)TABLE[d & 3];
        assert_near((double)y[i], sum[0] + sum[1] + (double)x[i] * (index[i] & 7) + 41, 1e-5, "calls", i);
    }
}

static void bits_fields_and_permutations(void **unused)
{
    (void)unused;
    enum { N = 200, K = 10 };
    static uint32_t x[N], y[N * K];
    int n = N;
    for (uint32_t i = 0; i < N; i++)
        x[i] = (uint32_t)(int32_t)(noise(i) * 2e9f) >> (i % 20);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y);
    assert_ok(launch(kernel("math", "bits"), 2, 128, ARGS(&py, &px, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++) {
        uint32_t v = x[i], w = x[N - 1 - i], *o = y + i * K, reversed = 0;
        for (int k = 0; k < 32; k++)
            reversed |= (v >> k & 1) << (31 - k);
        assert_int_equal(o[0], v >> 5 & 511);
        assert_int_equal((int32_t)o[1], (int32_t)(v << 22) >> 25);
        assert_int_equal(o[2], (w & ~0xfff00u) | (v << 8 & 0xfff00u));
        assert_int_equal(o[3], (v & 255) | (w >> 24 & 255) << 8 | (v >> 8 & 255) << 16 | (w >> 16 & 255) << 24);
        assert_int_equal(o[4], reversed);
        assert_int_equal(o[5], v ? __builtin_clz(v) : 32);
        assert_int_equal(o[6], __builtin_popcount(v) + __builtin_ffs((int)v));
        assert_int_equal(o[7], w << 11 | v >> 21);
        assert_int_equal(o[8], (uint32_t)((int64_t)((int32_t)(v << 8) >> 8) * ((int32_t)(w << 8) >> 8)));
        assert_int_equal(o[9], v < w ? (v & 0xff00ffu) | (w << (v & 31)) : ~v >> (w & 31));
    }
}

static void integer_atomics_in_both_memories(void **unused)
{
    (void)unused;
    enum { N = 1000 };
    static int x[N];
    int total = 0, sum = 0, n = N;
    unsigned highest = 0, largest = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i * 7919 % 1009;
        sum += x[i];
        largest = (unsigned)x[i] > largest ? (unsigned)x[i] : largest;
    }
    CUdeviceptr px = device_new(x, sizeof x), pt = device_new(&total, 4), ph = device_new(&highest, 4);
    assert_ok(launch(kernel("math", "atomics"), 4, 256, ARGS(&pt, &ph, &px, &n)));
    read_back(&total, pt, 4);
    read_back(&highest, ph, 4);
    assert_int_equal(total, sum);
    assert_int_equal(highest, largest);
}

static void tensor_cores_with_16_bit_and_tf32_inputs(void **unused)
{
    (void)unused;
    static const char *const NAMES[] = {"mma_bf16", "mma_f16", "mma_ldmatrix", "mma_tf32"};
    for (int kind = 0; kind < 4; kind++) {
        int depth = kind == 3 ? 8 : 16;
        float a[256], b[128], c[128], d[128];
        uint16_t ha[256], hb[128];
        for (int i = 0; i < 256; i++) {
            ha[i] = kind == 1 ? f16_of_float(noise((uint32_t)i)) : bf16_of_float(noise((uint32_t)i));
            a[i] = kind == 3 ? noise((uint32_t)i) : kind == 1 ? float_of_f16(ha[i]) : float_of_bf16(ha[i]);
        }
        for (int i = 0; i < 128; i++) {
            hb[i] = kind == 1 ? f16_of_float(noise((uint32_t)i + 999)) : bf16_of_float(noise((uint32_t)i + 999));
            b[i] = kind == 3 ? noise((uint32_t)i + 999) : kind == 1 ? float_of_f16(hb[i]) : float_of_bf16(hb[i]);
            c[i] = noise((uint32_t)i + 5000);
        }
        CUdeviceptr pa = kind == 3 ? device_new(a, sizeof a) : device_new(ha, sizeof ha);
        CUdeviceptr pb = kind == 3 ? device_new(b, sizeof b) : device_new(hb, sizeof hb);
        CUdeviceptr pc = device_new(c, sizeof c), pd = device_new(NULL, sizeof d);
        assert_ok(launch(kernel("mma", NAMES[kind]), 1, 32, ARGS(&pd, &pa, &pb, &pc)));
        read_back(d, pd, sizeof d);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                double sum = (double)c[i * 8 + j];
                for (int k = 0; k < depth; k++) {
                    float x = a[i * depth + k], y = b[k * 8 + j];
                    sum += kind == 3 ? (double)tf32_of_float(x) * (double)tf32_of_float(y) : (double)x * (double)y;
                }
                assert_near((double)d[i * 8 + j], sum, 1e-6, NAMES[kind], i * 8 + j);
            }
    }
}

static uint32_t bits(float f)
{
    return bits_of_float(f);
}

static int clamped(long long v, int low, int high)
{
    return (int)(v < low ? low : v > high ? high : v);
}

static void rare_forms_of_instructions(void **unused)
{
    (void)unused;
    enum { N = 300, K = 20 };
    static uint32_t x[N], y[N * K];
    int n = N;
    for (uint32_t i = 0; i < N; i++)
        x[i] = (uint32_t)(int32_t)(noise(i) * 2e9f) >> (i % 24);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y);
    assert_ok(launch(kernel("forms", "forms"), 3, 128, ARGS(&py, &px, &n)));
    read_back(y, py, sizeof y);
    for (int i = 0; i < N; i++) {
        uint32_t a = x[i], b = x[N - 1 - i], c = x[(i + 1) % N], *o = y + i * K, dot = c, replicated = 0;
        float fa = (float)(int)a * 1e-6f, fb = (float)(int)b * 1e-6f, square = fmaf(fa, fa, 0.25f);
        for (int k = 0; k < 4; k++) {
            dot += (uint32_t)((int8_t)(a >> 8 * k) * (int8_t)(b >> 8 * k));
            replicated |= (a >> (8 * k + 7) & 1 ? 255u : 0u) << 8 * k;
        }
        unsigned __int128 sum = (unsigned __int128)a * b + c;
        uint64_t wide = (uint64_t)sum;
        sum = (unsigned __int128)wide + (a ^ c) + ((uint64_t)a << 32);
        assert_int_equal(o[0], (a & b) | (~a & c));
        assert_int_equal(o[1], dot);
        assert_int_equal(o[2], a < b && !(a > c));
        assert_int_equal(o[3], !(a < b) && !(a > c));
        assert_int_equal(o[4], clamped((int)a >> 20, 0, 255));
        assert_int_equal((int)o[5], (int8_t)a);
        float up = fa + 1e-12f;
        assert_int_equal(o[6], bits((double)up < (double)fa + (double)1e-12f ? nextafterf(up, INFINITY) : up));
        assert_int_equal(o[7], bits(square > 1 ? 1 : square));
        assert_int_equal(o[8], 1);
        assert_int_equal(o[9], (uint32_t)sum);
        assert_int_equal(o[10], (uint32_t)(sum >> 32));
        assert_int_equal(o[11], (uint32_t)(sum >> 64));
        assert_int_equal(o[12], c - (a ^ c) - (a < b));
        assert_int_equal(o[13], fa > fb ? 0xffffffffu : 0);
        assert_int_equal(o[14], (int)a >= 0 ? b : c);
        assert_int_equal(o[15] & 0x7fffffff, 0);
        assert_int_equal(o[16], replicated);
        assert_int_equal(o[17], a << 16 | a >> 16);
        assert_int_equal((int)o[18], clamped(2ll * (int)a, INT32_MIN, INT32_MAX));
        assert_int_equal(o[19], clamped((long long)rintf(fa), 0, 255));
    }
}

static void asynchronous_copies_warp_sums_generic_addresses_and_tables(void **unused)
{
    (void)unused;
    float x[128], y[32];
    int total[32], jumped[32];
    for (uint32_t i = 0; i < 128; i++)
        x[i] = noise(i);
    CUdeviceptr px = device_new(x, sizeof x), py = device_new(NULL, sizeof y), pt = device_new(NULL, sizeof total);
    CUfunction copies = kernel("forms", "copies"), table = kernel("forms", "table");
    assert_ok(launch(copies, 1, 32, ARGS(&py, &pt, &px)));
    read_back(y, py, sizeof y);
    read_back(total, pt, sizeof total);
    assert_ok(launch(table, 1, 32, ARGS(&pt)));
    read_back(jumped, pt, sizeof jumped);
    for (int i = 0; i < 32; i++) {
        assert_near((double)y[i], (double)x[4 * i] + (double)x[4 * i + 1] + (double)x[4 * i + 2] + (double)x[4 * i + 3], 1e-6,
                    "sum", i);
        assert_int_equal(total[i], 3 * 31 * 16);
        assert_int_equal(jumped[i], 100 * ((i & 3) < 2 ? (i & 3) + 1 : 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(vector_add_with_64_bit_offsets),
        TEST(bf16_by_shifts_and_by_hardware),
        TEST(row_sums_by_a_tree_in_shared_memory),
        TEST(warp_shuffles_votes_and_masks),
        TEST(softmax_by_ex2_and_lg2),
        TEST(tiled_gemm_of_odd_sizes_and_vectors_of_four),
        TEST(lanes_diverge_and_come_together),
        TEST(philox_and_high_products),
        TEST(the_math_library_as_nvrtc_inlines_it),
        TEST(calls_constants_variables_and_local_arrays),
        TEST(bits_fields_and_permutations),
        TEST(integer_atomics_in_both_memories),
        TEST(tensor_cores_with_16_bit_and_tf32_inputs),
        TEST(rare_forms_of_instructions),
        TEST(asynchronous_copies_warp_sums_generic_addresses_and_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
