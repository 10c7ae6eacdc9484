/* Scores are computed as columns, (keys, queries): a vector has one key's scores for 16 queries, so that maxima and sums are
 * taken without moving a lane, and weights become a factor of the next product as they are, in two parts that have 16 bits of
 * them. All sums are float32.
 *
 * Heads that share a kv-head share its packed keys and values too, for the grid's rows are dealt in blocks of such heads.
 */
#include "ops/attention/attention_bf16.h"

#include "ops/bf16_unit.h"

#ifdef BF16_UNITS

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

enum { BF16_HEAD_MAX = 256 };
enum { HEADS = 8 };    /* that are computed together at most */
enum { QUERIES = 64 }; /* of a block, where keys own the sums */

#define LINES _Alignas(64) /* tiles that cross cache lines take twice as long to load */

#define LOG2_E 1.44269504088896341f
#define LN_2 0.69314718055994531f

typedef float queries_of[TILE_Q];

/* Which keys some queries see: lowest and highest of all, and those that every query sees. */
struct view {
    __m512i first[QUERIES / 16], last[QUERIES / 16];
    int64_t low, high, all_low, all_high;
};

/* 2^x to about 1e-7, and exactly 1 for 0; 0 far below, and a NaN stays one. */
AVX512 static inline __m512 exp2_of(__m512 x)
{
    __m512 t = _mm512_max_ps(_mm512_set1_ps(-200), x), n = _mm512_roundscale_ps(t, 0), r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(1.54035304e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.33335581e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.61812911e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.55041087e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40226507e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93147181e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

/* Two vectors as one of pairs: the upper 8 bits of each number's mantissa, and what is left, rounded to 8 bits. Cut off, weights
 * would be too small by 8e-6 in the mean, and sums over many queries have that in full: it doubled the error of some gradients.
 */
AVX512 static inline void pairs(uint32_t *upper, uint32_t *lower, __m512 x, __m512 y)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000u), half = _mm512_set1_epi32(0x8000);
    __m512i x_top = _mm512_and_si512((__m512i)x, top), y_top = _mm512_and_si512((__m512i)y, top);
    __m512i x_rest = (__m512i)_mm512_sub_ps(x, (__m512)x_top), y_rest = (__m512i)_mm512_sub_ps(y, (__m512)y_top);
    x_rest = _mm512_add_epi32(x_rest, half);
    y_rest = _mm512_add_epi32(y_rest, half);
    _mm512_storeu_si512(upper, _mm512_or_si512(_mm512_srli_epi32(x_top, 16), y_top));
    _mm512_storeu_si512(lower, _mm512_ternarylogic_epi32(_mm512_srli_epi32(x_rest, 16), y_rest, top, 0xf8)); /* x | (y & top) */
}

/* Queries beyond the last, up to `rows`, see nothing. */
AVX512 static void attention_bf16_look(struct view *s, const int32_t *first, const int32_t *last, int64_t count, int64_t rows)
{
    *s = (struct view){.low = INT32_MAX, .high = -1, .all_low = 0, .all_high = INT32_MAX};
    for (int64_t i = 0; i < count; i++) {
        s->low = min(s->low, first[i]);
        s->high = max(s->high, last[i]);
        s->all_low = max(s->all_low, first[i]);
        s->all_high = min(s->all_high, last[i]);
    }
    for (int64_t v = 0; v < rows / 16; v++) {
        int64_t there = max(min(count - 16 * v, 16), 0);
        __mmask16 mask = (__mmask16)((1u << there) - 1);
        s->first[v] = _mm512_mask_loadu_epi32(_mm512_set1_epi32(INT32_MAX), mask, first + 16 * v);
        s->last[v] = _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), mask, last + 16 * v);
    }
    if (count < rows)
        s->all_high = -1;
}

AVX512 static inline __mmask16 seen(const struct view *s, int64_t v, int64_t key)
{
    __m512i k = _mm512_set1_epi32((int)key);
    return _mm512_mask_cmple_epi32_mask(_mm512_cmple_epi32_mask(s->first[v], k), k, s->last[v]);
}

static inline bool all_seen(const struct view *s, int64_t key, int64_t keys)
{
    return key >= s->all_low && key + keys - 1 <= s->all_high;
}

AVX512 static void tanh_of_scores(float *score, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        score[i] = real_tanh(score[i] * factor);
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

struct forward {
    LINES uint16_t key[TILE_K * BF16_HEAD_MAX], value_columns[BF16_HEAD_MAX * TILE_K];
    uint32_t query[HEADS][BF16_HEAD_MAX / 2 * TILE_Q], weight[2][TILE_K / 2 * TILE_Q];
    float y[HEADS][BF16_HEAD_MAX * TILE_Q], score[TILE_K * TILE_Q];
    queries_of max_score[HEADS], sum[HEADS]; /* scores in units of ln 2 */
};

/* Turns the scores of 16 queries into weights relative to their running maximum; rescales the sums so far. */
AVX512 static inline void attention_bf16_soften(struct forward *f, int head, const struct view *s, int v, int64_t key,
                                                int64_t keys, int64_t width, float unit)
{
    const float *score = f->score + 16 * v;
    float *max_score = f->max_score[head] + 16 * v, *sum = f->sum[head] + 16 * v;
    bool all = all_seen(s, key, keys);
    __m512 factor = _mm512_set1_ps(unit), old = _mm512_loadu_ps(max_score), top = old, total = _mm512_setzero_ps();
    for (int64_t j = 0; j < keys; j++) {
        __mmask16 mask = all ? 0xffff : seen(s, v, key + j);
        __m512 z = _mm512_mul_ps(_mm512_loadu_ps(score + j * TILE_Q), factor);
        top = _mm512_mask_max_ps(top, mask, top, z);
    }
    _mm512_storeu_ps(max_score, top);
    __mmask16 any = _mm512_cmp_ps_mask(top, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    top = _mm512_maskz_mov_ps(any, top);
    for (int64_t j = 0; j < keys; j += 32)
        for (int64_t i = j; i < j + 16; i++) {
            __m512 low = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(score + i * TILE_Q), factor, top));
            __m512 high = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(score + (i + 16) * TILE_Q), factor, top));
            if (!all) {
                low = _mm512_maskz_mov_ps(seen(s, v, key + i), low);
                high = _mm512_maskz_mov_ps(seen(s, v, key + i + 16), high);
            }
            total = _mm512_add_ps(total, _mm512_add_ps(low, high));
            int64_t at = (i - j / 2) * TILE_Q + 16 * v;
            pairs(f->weight[0] + at, f->weight[1] + at, low, high);
        }
    __m512 shrink = exp2_of(_mm512_sub_ps(old, top));
    _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(sum), shrink, total));
    if (_mm512_cmp_ps_mask(shrink, _mm512_set1_ps(1), _CMP_NEQ_UQ))
        for (int64_t d = 0; d < width; d++) {
            float *y = f->y[head] + d * TILE_Q + 16 * v;
            _mm512_storeu_ps(y, _mm512_mul_ps(_mm512_loadu_ps(y), shrink));
        }
}

/* The sink, if there is one, is where maximum and sum begin. */
static void forward_begin(struct forward *f, int i, const struct call *c, int64_t head, int64_t width)
{
    const uint16_t *sinks = c->data[FWD_SINKS];
    for (int q = 0; q < TILE_Q; q++) {
        f->max_score[i][q] = sinks ? bf16_to_f32(sinks[head]) * LOG2_E : -INFINITY;
        f->sum[i][q] = sinks ? 1 : 0;
    }
    memset(f->y[i], 0, (size_t)(width * TILE_Q) * sizeof(float));
}

static void forward_end(struct forward *f, int i, const struct call *c, const struct bf16_rows *y)
{
    for (int64_t q = 0; q < y->count; q++) {
        float lse = f->max_score[i][q] * LN_2 + real_log(f->sum[i][q]);
        ((float *)c->data[FWD_LSE])[(y->begin + q) * y->heads + y->head] = lse;
    }
    for (int64_t q = 0; q < TILE_Q; q++)
        f->sum[i][q] = 1 / f->sum[i][q];
    bf16_unpack_columns(f->y[i], f->sum[i], y);
}

/* One tile of queries, for `heads` heads of one kv-head. */
AVX512 static void forward(const struct bf16_unit *unit, const struct call *c, const struct sequences *of, int64_t row,
                           int64_t count, int64_t head, int heads)
{
    struct forward f;
    struct view s;
    int64_t D = c->dim[AT_D], width = round_up(D, BF16_STEP), kv_heads = c->dim[AT_K];
    float scale = (float)c->number[AT_SCALE], cap = (float)c->number[AT_CAP], score_unit = (cap > 0 ? cap : scale) * LOG2_E;
    struct bf16_rows q = {c->data[FWD_Q], row, count, TILE_Q, c->dim[AT_H], head, D, width};
    struct bf16_rows k = {.heads = kv_heads, .head = head / (c->dim[AT_H] / kv_heads), .D = D, .width = width};
    attention_bf16_look(&s, (int32_t *)c->data[FWD_FIRST] + row, (int32_t *)c->data[FWD_LAST] + row, q.count, q.rows);
    for (int i = 0; i < heads; i++, q.head++) {
        forward_begin(&f, i, c, q.head, width);
        bf16_pack_columns_paired(f.query[i], &q);
    }
    for (k.begin = sequences_key_tile(of, row, s.low); k.begin <= s.high; k.begin += TILE_K) {
        k.count = min(s.high + 1 - k.begin, TILE_K);
        k.rows = round_up(k.count, BF16_STEP);
        k.x = c->data[FWD_K];
        bf16_pack(f.key, &k);
        k.x = c->data[FWD_V];
        bf16_pack_columns(f.value_columns, &k);
        for (int i = 0; i < heads; i++) {
            unit->multiply(&(struct bf16_product){f.score, {f.key}, {f.query[i]}, 1, k.rows, TILE_Q, width, false});
            if (cap > 0)
                tanh_of_scores(f.score, k.rows * TILE_Q, scale / cap);
            for (int v = 0; v < 2; v++)
                attention_bf16_soften(&f, i, &s, v, k.begin, k.rows, width, score_unit);
            unit->multiply(&(struct bf16_product){
                f.y[i], {f.value_columns, f.value_columns}, {f.weight[0], f.weight[1]}, 2, width, TILE_Q, k.rows, true});
        }
    }
    q.x = c->data[FWD_Y];
    q.head = head;
    for (int i = 0; i < heads; i++, q.head++)
        forward_end(&f, i, c, &q);
}

/* --- backward ----------------------------------------------------------------------------------------------------------- */

struct statistics {                     /* of the queries of one head */
    float lse[QUERIES], delta[QUERIES]; /* lse in units of ln 2 */
};

static void statistics(struct statistics *s, const float *lse, const float *delta, const struct bf16_rows *q)
{
    for (int64_t i = 0; i < q->rows; i++) {
        int64_t at = (q->begin + min(i, q->count - 1)) * q->heads + q->head;
        s->lse[i] = lse[at] * LOG2_E;
        s->delta[i] = delta[at];
    }
}

struct scores { /* of keys and queries: q·k, or the tanh of its cap, and dy·v */
    LINES float score[TILE_K * QUERIES], product[TILE_K * QUERIES];
    float scale, cap;
};

/* P and dS of a key and 16 queries, the numbers from `at` on. */
AVX512 static inline void attention_bf16_weigh(__m512 *p, __m512 *ds, const struct scores *s, int64_t at,
                                               const struct statistics *q, int64_t v, __mmask16 mask)
{
    __m512 z = _mm512_loadu_ps(s->score + at), slope = _mm512_set1_ps(s->scale);
    if (s->cap > 0)
        slope = _mm512_mul_ps(slope, _mm512_fnmadd_ps(z, z, _mm512_set1_ps(1)));
    __m512 unit = _mm512_set1_ps((s->cap > 0 ? s->cap : s->scale) * LOG2_E);
    *p = _mm512_maskz_mov_ps(mask, exp2_of(_mm512_fmsub_ps(z, unit, _mm512_loadu_ps(q->lse + 16 * v))));
    __m512 gap = _mm512_sub_ps(_mm512_loadu_ps(s->product + at), _mm512_loadu_ps(q->delta + 16 * v));
    *ds = _mm512_maskz_mul_ps(mask, _mm512_mul_ps(*p, slope), gap);
}

/* Both products of packed keys and values (keys, width) with packed queries and dy (width, queries). */
static void attention_bf16_score(struct scores *s, const struct bf16_unit *unit, const uint16_t *key, const uint16_t *value,
                                 const uint32_t *query, const uint32_t *dy, int64_t keys, int64_t queries, int64_t width)
{
    unit->multiply(&(struct bf16_product){s->score, {key}, {query}, 1, keys, queries, width, false});
    unit->multiply(&(struct bf16_product){s->product, {value}, {dy}, 1, keys, queries, width, false});
    if (s->cap > 0)
        tanh_of_scores(s->score, keys * queries, s->scale / s->cap);
}

struct backward_q {
    struct scores scores;
    struct statistics statistics[HEADS];
    LINES uint16_t key[TILE_K * BF16_HEAD_MAX], value[TILE_K * BF16_HEAD_MAX], key_columns[BF16_HEAD_MAX * TILE_K];
    uint32_t query[HEADS][BF16_HEAD_MAX / 2 * TILE_Q], dy[HEADS][BF16_HEAD_MAX / 2 * TILE_Q], ds[2][TILE_K / 2 * TILE_Q];
    float dq[HEADS][BF16_HEAD_MAX * TILE_Q];
};

AVX512 static void attention_bf16_weigh_columns(struct backward_q *b, int head, const struct view *s, int64_t key, int64_t keys)
{
    bool all = all_seen(s, key, keys);
    for (int64_t v = 0; v < 2; v++)
        for (int64_t j = 0; j < keys; j += 32)
            for (int64_t i = j; i < j + 16; i++) {
                __m512 p, low, high;
                attention_bf16_weigh(&p, &low, &b->scores, i * TILE_Q + 16 * v, &b->statistics[head], v,
                                     all ? 0xffff : seen(s, v, key + i));
                attention_bf16_weigh(&p, &high, &b->scores, (i + 16) * TILE_Q + 16 * v, &b->statistics[head], v,
                                     all ? 0xffff : seen(s, v, key + i + 16));
                int64_t at = (i - j / 2) * TILE_Q + 16 * v;
                pairs(b->ds[0] + at, b->ds[1] + at, low, high);
            }
}

static void backward_q(const struct bf16_unit *unit, const struct call *c, const struct sequences *of, int64_t row, int64_t count,
                       int64_t head, int heads)
{
    static const float ones[TILE_Q] = {[0 ... TILE_Q - 1] = 1};
    struct backward_q b;
    struct view s;
    int64_t D = c->dim[AT_D], width = round_up(D, BF16_STEP), kv_heads = c->dim[AT_K];
    struct bf16_rows q = {c->data[DQ_Q], row, count, TILE_Q, c->dim[AT_H], head, D, width};
    struct bf16_rows k = {.heads = kv_heads, .head = head / (c->dim[AT_H] / kv_heads), .D = D, .width = width};
    b.scores.scale = (float)c->number[AT_SCALE];
    b.scores.cap = (float)c->number[AT_CAP];
    attention_bf16_look(&s, (int32_t *)c->data[DQ_FIRST] + row, (int32_t *)c->data[DQ_LAST] + row, q.count, q.rows);
    for (int i = 0; i < heads; i++, q.head++) {
        q.x = c->data[DQ_Q];
        bf16_pack_columns_paired(b.query[i], &q);
        q.x = c->data[DQ_DY];
        bf16_pack_columns_paired(b.dy[i], &q);
        statistics(&b.statistics[i], c->data[DQ_LSE], c->data[DQ_DELTA], &q);
        memset(b.dq[i], 0, (size_t)(width * TILE_Q) * sizeof(float));
    }
    for (k.begin = sequences_key_tile(of, row, s.low); k.begin <= s.high; k.begin += TILE_K) {
        k.count = min(s.high + 1 - k.begin, TILE_K);
        k.rows = round_up(k.count, BF16_STEP);
        k.x = c->data[DQ_V];
        bf16_pack(b.value, &k);
        k.x = c->data[DQ_K];
        bf16_pack(b.key, &k);
        bf16_pack_columns(b.key_columns, &k);
        for (int i = 0; i < heads; i++) {
            attention_bf16_score(&b.scores, unit, b.key, b.value, b.query[i], b.dy[i], k.rows, TILE_Q, width);
            attention_bf16_weigh_columns(&b, i, &s, k.begin, k.rows);
            unit->multiply(&(struct bf16_product){
                b.dq[i], {b.key_columns, b.key_columns}, {b.ds[0], b.ds[1]}, 2, width, TILE_Q, k.rows, true});
        }
    }
    q.x = c->data[DQ_DQ];
    q.head = head;
    for (int i = 0; i < heads; i++, q.head++)
        bf16_unpack_columns(b.dq[i], ones, &q);
}

struct backward_kv {
    struct scores scores;
    struct statistics statistics;
    LINES uint16_t key[TILE_K * BF16_HEAD_MAX], value[TILE_K * BF16_HEAD_MAX];
    uint32_t query[BF16_HEAD_MAX / 2 * QUERIES], dy[BF16_HEAD_MAX / 2 * QUERIES];           /* for sums over D */
    uint32_t query_rows[QUERIES / 2 * BF16_HEAD_MAX], dy_rows[QUERIES / 2 * BF16_HEAD_MAX]; /* for sums over queries */
    uint32_t p[2][TILE_K * QUERIES / 2], ds[2][TILE_K * QUERIES / 2];
    float dk[TILE_K * BF16_HEAD_MAX], dv[TILE_K * BF16_HEAD_MAX];
};

AVX512 static void weigh_rows(struct backward_kv *b, const struct view *s, int64_t key, int64_t keys, int64_t queries)
{
    bool all = all_seen(s, key, keys);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < queries; i += 32) {
            __m512 p[2], ds[2];
            for (int64_t h = 0; h < 2; h++) {
                int64_t v = i / 16 + h;
                attention_bf16_weigh(&p[h], &ds[h], &b->scores, j * queries + 16 * v, &b->statistics, v,
                                     all ? 0xffff : seen(s, v, key + j));
            }
            int64_t at = (j * queries + i) / 2;
            pairs(b->p[0] + at, b->p[1] + at, p[0], p[1]);
            pairs(b->ds[0] + at, b->ds[1] + at, ds[0], ds[1]);
        }
}

static void attention_bf16_add_rows(float *to, const struct bf16_unit *unit, const uint32_t weight[2][TILE_K * QUERIES / 2],
                                    const uint32_t *rows, int64_t width, int64_t queries)
{
    const uint16_t *upper = (const uint16_t *)weight[0], *lower = (const uint16_t *)weight[1];
    unit->multiply(&(struct bf16_product){to, {upper, lower}, {rows, rows}, 2, TILE_K, width, queries, true});
}

static void backward_kv(const struct bf16_unit *unit, const struct call *c, int64_t key, int64_t count, int64_t kv)
{
    struct backward_kv b;
    struct view s;
    const int32_t *first = c->data[KV_FIRST], *last = c->data[KV_LAST], *until = c->data[KV_UNTIL];
    int64_t D = c->dim[AT_D], width = round_up(D, BF16_STEP), kv_heads = c->dim[AT_K], group = c->dim[AT_H] / kv_heads,
            high = key;
    struct bf16_rows k = {c->data[KV_K], key, count, TILE_K, kv_heads, kv, D, width};
    struct bf16_rows q = {.heads = c->dim[AT_H], .D = D, .width = width};
    b.scores.scale = (float)c->number[AT_SCALE];
    b.scores.cap = (float)c->number[AT_CAP];
    for (int64_t j = 0; j < k.count; j++)
        high = max(high, until[key + j]);
    bf16_pack(b.key, &k);
    k.x = c->data[KV_V];
    bf16_pack(b.value, &k);
    memset(b.dk, 0, (size_t)(TILE_K * width) * sizeof(float));
    memset(b.dv, 0, (size_t)(TILE_K * width) * sizeof(float));
    for (q.head = kv * group; q.head < (kv + 1) * group; q.head++)
        for (q.begin = key; q.begin <= high; q.begin += QUERIES) {
            q.count = min(high + 1 - q.begin, QUERIES);
            q.rows = round_up(q.count, BF16_STEP);
            q.x = c->data[KV_Q];
            bf16_pack_columns_paired(b.query, &q);
            bf16_pack_paired(b.query_rows, &q);
            q.x = c->data[KV_DY];
            bf16_pack_columns_paired(b.dy, &q);
            bf16_pack_paired(b.dy_rows, &q);
            attention_bf16_look(&s, first + q.begin, last + q.begin, q.count, q.rows);
            statistics(&b.statistics, c->data[KV_LSE], c->data[KV_DELTA], &q);
            attention_bf16_score(&b.scores, unit, b.key, b.value, b.query, b.dy, TILE_K, q.rows, width);
            weigh_rows(&b, &s, key, TILE_K, q.rows);
            attention_bf16_add_rows(b.dv, unit, b.p, b.dy_rows, width, q.rows);
            attention_bf16_add_rows(b.dk, unit, b.ds, b.query_rows, width, q.rows);
        }
    k.x = c->data[KV_DK];
    bf16_unpack(b.dk, &k);
    k.x = c->data[KV_DV];
    bf16_unpack(b.dv, &k);
}

/* Rows g, g + 1, … of a grid of (tiles, heads) that are of one tile and one kv-head, HEADS at most. */
static int attention_bf16_together(const struct call *c, int64_t g, int64_t end)
{
    int64_t group = c->dim[AT_H] / c->dim[AT_K];
    return (int)min(min(group - g % c->dim[AT_H] % group, HEADS), end - g);
}

/* The tiles that start in a block of tokens. */
static void attention_bf16_block(const struct bf16_unit *unit, enum attention_kernel kernel, const struct call *c,
                                 const struct sequences *s, int64_t block, int64_t tile, int64_t head, int heads)
{
    for (int64_t t = block; t < min(block + tile, s->count); t++) {
        int64_t count = sequences_tile(s, t, tile);
        if (count && kernel == ATTENTION_FORWARD)
            forward(unit, c, s, t, count, head, heads);
        else if (count && kernel == ATTENTION_BACKWARD_Q)
            backward_q(unit, c, s, t, count, head, heads);
        else if (count)
            backward_kv(unit, c, t, count, head);
    }
}

static void attention_bf16_run(const struct bf16_unit *unit, enum attention_kernel kernel, const struct call *c, int64_t g,
                               int64_t end)
{
    static const int begins[] = {
        [ATTENTION_FORWARD] = FWD_BEGIN, [ATTENTION_BACKWARD_Q] = DQ_BEGIN, [ATTENTION_BACKWARD_KV] = KV_BEGIN};
    static const int firsts[] = {
        [ATTENTION_FORWARD] = FWD_FIRST, [ATTENTION_BACKWARD_Q] = DQ_FIRST, [ATTENTION_BACKWARD_KV] = KV_FIRST};
    static const int lasts[] = {
        [ATTENTION_FORWARD] = FWD_LAST, [ATTENTION_BACKWARD_Q] = DQ_LAST, [ATTENTION_BACKWARD_KV] = KV_LAST};
    const struct sequences s =
        sequences_of(c->data[begins[kernel]], c->data[firsts[kernel]], c->data[lasts[kernel]], c->dim[AT_T]);
    bool keys = kernel == ATTENTION_BACKWARD_KV;
    int64_t heads = c->dim[keys ? AT_K : AT_H], tile = keys ? TILE_K : TILE_Q;
    for (int taken; g < end; g += taken) {
        taken = keys ? 1 : attention_bf16_together(c, g, end);
        attention_bf16_block(unit, kernel, c, &s, g / heads * tile, tile, g % heads, taken);
    }
}

bool attention_bf16_takes(enum dtype dtype, int64_t D)
{
    return dtype == DTYPE_BF16 && D <= BF16_HEAD_MAX && bf16_unit();
}

bool attention_bf16(enum attention_kernel kernel, const struct call *c, int64_t begin, int64_t end)
{
    const struct bf16_unit *unit = attention_bf16_takes(c->dtype[0], c->dim[AT_D]) ? bf16_unit() : NULL;
    if (unit) {
        unit->begin();
        attention_bf16_run(unit, kernel, c, begin, end);
        unit->end();
    }
    return unit != NULL;
}

#elif !defined(REAL_DOUBLE)

bool attention_bf16_takes(enum dtype dtype, int64_t D)
{
    (void)dtype, (void)D;
    return false;
}

bool attention_bf16(enum attention_kernel kernel, const struct call *c, int64_t begin, int64_t end)
{
    (void)kernel, (void)c, (void)begin, (void)end;
    return false;
}

#endif
