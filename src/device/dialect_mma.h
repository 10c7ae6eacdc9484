/* What kernels on tensor cores use besides dialect.h: CUDA C for compute capability 8.0 and later. This text stands before every
 * file whose name ends in _mma, or has _mma_ in it.
 *
 * A work-group has WARPS warps of 32 lanes. PARTS of them share 16 rows of a matrix (queries, say), each with its own part of the
 * WIDTH channels. What those rows are multiplied by comes in tiles of rows in LOCAL memory. In fragments, as PTX lays them out, g
 * = lane / 4 and t = lane % 4:
 *
 *     u32 a[STEPS][4]     16 rows of a matrix, 32 bytes (a step) at a time: rows g and g + 8, bytes 4 t and 4 t + 16
 *     float c[N][4]       16 rows of results, 8 columns at a time: row g, columns 2 t and 2 t + 1, then the same of row g + 8
 *
 * A row of a tile has STRIDE bytes, an odd number of 16: eight rows that are read at one place lie in different banks.
 * Products of 16-bit elements are exact, and results that become factors are sums of two such elements. A float32 is the sum of
 * two TF32, and three of the four products are computed.
 */
/* clang-format off */
#define BYTES_bf16 2
#define BYTES_f16 2
#define BYTES_f32 4
#define BYTES PASTE(BYTES_, TYPE_0)
#define WARPS (GROUP / 32)
#define PER_CHUNK (16 / BYTES)          /* elements of 16 bytes */
#define CHUNKS (WIDTH / PER_CHUNK)      /* of a row */
#define STRIDE (16 * (CHUNKS | 1))
#define STEP (32 / BYTES)               /* channels of a step */
#define STEPS (WIDTH / PARTS / STEP)    /* of a warp's part of the channels */
#define COLUMNS (WIDTH / PARTS / 8)     /* the same in eights */
#define PART_BYTES (WIDTH / PARTS * BYTES)
#define LANE (LOCAL_ID % 32)
#define PART (LOCAL_ID / 32 % PARTS)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

HELPER float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Joined over the four lanes of a row. */
HELPER float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

HELPER float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* --- copies into LOCAL memory ---------------------------------------------------------------------------------------------- */

HELPER u32 local_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

/* 16 (or 4) bytes, or zeros: they are there after COPIES_WAIT and a barrier. */
HELPER void copy_16(u32 to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

HELPER void copy_4(u32 to, const void *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}

#define COPIES_WAIT                                                            \
    do {                                                                       \
        asm volatile("cp.async.commit_group;" : : : "memory");                 \
        asm volatile("cp.async.wait_group 0;" : : : "memory");                 \
    } while (0)

/* Rows begin ... begin + ROWS of one head of x, which has `heads` of D channels; zeros after row `last` and beyond D. */
template <int ROWS>
HELPER void fetch_rows(u32 to, const TYPE_0 *x, i64 begin, i64 last, i64 heads, i64 head, i64 D)
{
    const TYPE_0 *from = x + (begin * heads + head) * D;
    int left = (int)MIN(last - begin, (i64)ROWS - 1), width = (int)D, step = (int)(heads * D);
    ROLL for (int chunk = LOCAL_ID; chunk < ROWS * CHUNKS; chunk += GROUP) {     /* unrolled, its offsets would fill registers */
        int row = chunk / CHUNKS, d = chunk % CHUNKS * PER_CHUNK;
        bool inside = row <= left && d < width;
        copy_16(to + (u32)(row * STRIDE + d * BYTES), from + (inside ? (i64)row * step + d : 0), inside);
    }
}

/* --- fragments ------------------------------------------------------------------------------------------------------------- */

/* This warp's 16 rows of x, from row `begin` of one head on, and its part of the channels; zeros beyond T rows and D channels. */
HELPER void fragments_of(u32 (&a)[STEPS][4], const TYPE_0 *x, i64 begin, i64 T, i64 heads, i64 head, i64 D)
{
    UNROLL for (int j = 0; j < STEPS; j++)
        UNROLL for (int i = 0; i < 4; i++) {
            i64 row = begin + LANE / 4 + i % 2 * 8;
            int d = PART * (WIDTH / PARTS) + (2 * j + i / 2) * PER_CHUNK + LANE % 4 * (4 / BYTES);
            a[j][i] = row < T && d < D ? *(const u32 *)(x + (row * heads + head) * D + d) : 0;
        }
}

HELPER void matrices_load(u32 (&m)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at) : "memory");
}

HELPER void matrices_load_transposed(u32 (&m)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at) : "memory");
}

#define MMA_OF(type, shape, name)                                                                                        \
    HELPER void mma_##type(float (&c)[4], const u32 (&a)[4], u32 b, u32 b_next)                                          \
    {                                                                                                                    \
        asm volatile("mma.sync.aligned." shape ".row.col.f32." name "." name ".f32 "                                     \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b_next));                                 \
    }
MMA_OF(bf16, "m16n8k16", "bf16")
MMA_OF(f16, "m16n8k16", "f16")
MMA_OF(f32, "m16n8k8", "tf32")

#if BYTES == 2

HELPER u32 pair_bf16(float x, float y)
{
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(y), "f"(x));
    return d;
}

HELPER u32 pair_f16(float x, float y)
{
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(y), "f"(x));
    return d;
}

HELPER void unpair_bf16(float &x, float &y, u32 pair)
{
    x = BITS_FLOAT(pair << 16);
    y = BITS_FLOAT(pair & 0xffff0000u);
}

HELPER void unpair_f16(float &x, float &y, u32 pair)
{
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(x), "=f"(y) : "r"(pair));
}

#define PAIR PASTE(pair_, TYPE_0)
#define UNPAIR PASTE(unpair_, TYPE_0)
#define MMA PASTE(mma_, TYPE_0)

/* c += a times the rows of a tile, which are c's columns; `tile` is where this warp's part of its first row begins. */
template <int N>
HELPER void times_rows(float (&c)[N][4], const u32 (&a)[STEPS][4], u32 tile)
{
    u32 from = tile + (u32)((LANE % 8 + LANE / 16 * 8) * STRIDE + LANE / 8 % 2 * 16), m[4];
    UNROLL for (int j = 0; j < STEPS; j++)
        UNROLL for (int n = 0; n < N; n += 2) {
            matrices_load(m, from + (u32)(n * 8 * STRIDE + j * 32));
            MMA(c[n], a[j], m[0], m[1]);
            MMA(c[n + 1], a[j], m[2], m[3]);
        }
}

/* c += w times a tile, whose rows are w's columns. */
template <int N>
HELPER void times_columns(float (&c)[COLUMNS][4], const float (&w)[N][4], u32 tile)
{
    u32 from = tile + (u32)(LANE % 16 * STRIDE + LANE / 16 * 16), m[4];
    UNROLL for (int k = 0; k < N; k += 2) {
        u32 high[4], low[4];
        UNROLL for (int i = 0; i < 4; i++) {
            float x, y, u = w[k + i / 2][i % 2 * 2], v = w[k + i / 2][i % 2 * 2 + 1];
            high[i] = PAIR(u, v);
            UNPAIR(x, y, high[i]);
            low[i] = PAIR(u - x, v - y);
        }
        UNROLL for (int n = 0; n < COLUMNS; n += 2) {
            matrices_load_transposed(m, from + (u32)(k * 8 * STRIDE + n * 16));
            MMA(c[n], low, m[0], m[1]);
            MMA(c[n + 1], low, m[2], m[3]);
            MMA(c[n], high, m[0], m[1]);
            MMA(c[n + 1], high, m[2], m[3]);
        }
    }
}

/* Two neighbours of a row. */
#define STORE_PAIR(name, i, x, y) (*(u32 *)(name + (i)) = PAIR(x, y))

#else

#define TF32_BITS 0xffffe000u
HELPER void split_f32(u32 &high, u32 &low, u32 x)
{
    high = x & TF32_BITS;
    low = FLOAT_BITS(BITS_FLOAT(x) - BITS_FLOAT(high)) & TF32_BITS;
}

HELPER void mma_three(float (&c)[4], const u32 (&high)[4], const u32 (&low)[4], u32 b, u32 b_next)
{
    u32 b_high, b_low, next_high, next_low;
    split_f32(b_high, b_low, b);
    split_f32(next_high, next_low, b_next);
    mma_f32(c, low, b_high, next_high);
    mma_f32(c, high, b_low, next_low);
    mma_f32(c, high, b_high, next_high);
}

template <int N>
HELPER void times_rows(float (&c)[N][4], const u32 (&a)[STEPS][4], u32 tile)
{
    u32 from = tile + (u32)((LANE % 8 + LANE / 16 * 8) * STRIDE + LANE / 8 % 2 * 16), m[4], high[4], low[4];
    UNROLL for (int j = 0; j < STEPS; j++) {
        UNROLL for (int i = 0; i < 4; i++)
            split_f32(high[i], low[i], a[j][i]);
        UNROLL for (int n = 0; n < N; n += 2) {
            matrices_load(m, from + (u32)(n * 8 * STRIDE + j * 32));
            mma_three(c[n], high, low, m[0], m[1]);
            mma_three(c[n + 1], high, low, m[2], m[3]);
        }
    }
}

/* A step has 8 rows of the tile, in the order 0, 2, 4, 6, 1, 3, 5, 7: so the results of a lane are its factors. */
template <int N>
HELPER void times_columns(float (&c)[COLUMNS][4], const float (&w)[N][4], u32 tile)
{
    u32 from = tile + (u32)(LANE % 4 * 2 * STRIDE + LANE / 4 * 4), b, b_next, high[4], low[4];
    UNROLL for (int k = 0; k < N; k++) {
        UNROLL for (int i = 0; i < 4; i++)
            split_f32(high[i], low[i], FLOAT_BITS(w[k][i % 2 * 2 + i / 2]));
        UNROLL for (int n = 0; n < COLUMNS; n++) {
            u32 at = from + (u32)(k * 8 * STRIDE + n * 32);
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(b) : "r"(at) : "memory");
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(b_next) : "r"(at + STRIDE) : "memory");
            mma_three(c[n], high, low, b, b_next);
        }
    }
}

#define STORE_PAIR(name, i, x, y)                                              \
    do {                                                                       \
        *(float2 *)(name + (i)) = make_float2(x, y);                           \
    } while (0)

#endif

/* The sum of what the warps of the same rows have in c, in the order of their parts; `room` has a place for all warps. */
template <int N>
HELPER void parts_put(float4 *room, const float (&c)[N][4])
{
    UNROLL for (int n = 0; n < N; n++)
        room[(LOCAL_ID / 32 * N + n) * 32 + LANE] = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
}

template <int N>
HELPER void parts_sum(float (&c)[N][4], const float4 *room)
{
    UNROLL for (int n = 0; n < N; n++) {
        float4 sum = room[(LOCAL_ID / 32 / PARTS * PARTS * N + n) * 32 + LANE];
        UNROLL for (int p = 1; p < PARTS; p++) {
            float4 next = room[((LOCAL_ID / 32 / PARTS * PARTS + p) * N + n) * 32 + LANE];
            sum.x += next.x;
            sum.y += next.y;
            sum.z += next.z;
            sum.w += next.w;
        }
        c[n][0] = sum.x;
        c[n][1] = sum.y;
        c[n][2] = sum.z;
        c[n][3] = sum.w;
    }
}
