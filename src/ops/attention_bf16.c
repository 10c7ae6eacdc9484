/* Scores are computed as columns, (keys, queries): a vector has one key's scores for 16 queries, so that maxima and sums are
 * taken without moving a lane, and weights become a factor of the next product as they are. Weights are rounded to bfloat16
 * there, all sums are float32.
 *
 * Heads that share a kv-head share its packed keys and values too, for the grid's rows are dealt in blocks of such heads.
 */
#include "ops/attention_bf16.h"

#ifdef BF16_UNITS

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

enum { HEADS = 8 }; /* that are computed together at most */

#define LOG2_E 1.44269504088896341f
#define LN_2 0.69314718055994531f

typedef float queries_of[TILE_Q];

/* Which keys the queries of a tile see: lowest and highest of all, and those that every query sees. */
struct sight {
    __m512i first[2], last[2];
    int64_t low, high, all_low, all_high;
};

/* 2^x to about 4e-7, and exactly 1 for 0; 0 far below, and a NaN stays one. */
AVX512 static inline __m512 exp2_of(__m512 x)
{
    __m512 t = _mm512_max_ps(_mm512_set1_ps(-200), x), n = _mm512_roundscale_ps(t, 0), r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(1.11255093e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.66628255e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.55740047e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40223507e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93142831e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

/* Two vectors as one of pairs, rounded to nearest. */
AVX512 static inline __m512i pairs(__m512 low, __m512 high)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i x = _mm512_srli_epi32(_mm512_add_epi32((__m512i)low, half), 16), y = _mm512_add_epi32((__m512i)high, half);
    return _mm512_ternarylogic_epi32(x, y, upper, 0xf8); /* x | (y & upper) */
}

/* A query beyond the last sees nothing. */
AVX512 static void look(struct sight *s, const int32_t *first, const int32_t *last, int64_t count)
{
    *s = (struct sight){.low = INT32_MAX, .high = -1, .all_low = 0, .all_high = INT32_MAX};
    for (int64_t i = 0; i < count; i++) {
        s->low = min(s->low, first[i]);
        s->high = max(s->high, last[i]);
        s->all_low = max(s->all_low, first[i]);
        s->all_high = min(s->all_high, last[i]);
    }
    for (int64_t v = 0; v < 2; v++) {
        int64_t there = max(min(count - 16 * v, 16), 0);
        __mmask16 mask = (__mmask16)((1u << there) - 1);
        s->first[v] = _mm512_mask_loadu_epi32(_mm512_set1_epi32(INT32_MAX), mask, first + 16 * v);
        s->last[v] = _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), mask, last + 16 * v);
    }
    if (count < TILE_Q)
        s->all_high = -1;
}

AVX512 static inline __mmask16 seen(const struct sight *s, int v, int64_t key)
{
    __m512i k = _mm512_set1_epi32((int)key);
    return _mm512_mask_cmple_epi32_mask(_mm512_cmple_epi32_mask(s->first[v], k), k, s->last[v]);
}

/* score = cap · tanh(score · scale / cap) */
AVX512 static void cap_columns(float *score, int64_t count, float scale, float cap)
{
    for (int64_t i = 0; i < count; i++)
        score[i] *= scale;
    cap_scores(score, count, cap);
}

/* --- forward ------------------------------------------------------------------------------------------------------------ */

struct forward {
    uint16_t key[TILE_K * BF16_HEAD_MAX], value_columns[BF16_HEAD_MAX * TILE_K];
    uint32_t query[HEADS][BF16_HEAD_MAX / 2 * TILE_Q], weight[TILE_K / 2 * TILE_Q];
    float y[HEADS][BF16_HEAD_MAX * TILE_Q], score[TILE_K * TILE_Q];
    queries_of max_score[HEADS], sum[HEADS]; /* scores in units of ln 2 */
};

/* Turns the scores of 16 queries into weights relative to their running maximum; rescales the sums so far. */
AVX512 static inline void soften(struct forward *f, int head, const struct sight *s, int v, int64_t key, int64_t keys,
                                 int64_t width, float unit)
{
    const float *score = f->score + 16 * v;
    float *max_score = f->max_score[head] + 16 * v, *sum = f->sum[head] + 16 * v;
    bool all = key >= s->all_low && key + keys - 1 <= s->all_high;
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
            _mm512_storeu_si512(f->weight + (j / 2 + i - j) * TILE_Q + 16 * v, pairs(low, high));
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
AVX512 static void forward(const struct bf16_unit *unit, const struct call *c, int64_t row, int64_t head, int heads)
{
    struct forward f;
    struct sight s;
    int64_t D = c->dim[AT_D], width = round_up(D, BF16_STEP), kv_heads = c->dim[AT_K];
    float scale = (float)c->number[AT_SCALE], cap = (float)c->number[AT_CAP], score_unit = cap > 0 ? LOG2_E : scale * LOG2_E;
    struct bf16_rows q = {c->data[FWD_Q], row, min(c->dim[AT_T] - row, TILE_Q), TILE_Q, c->dim[AT_H], head, D, width};
    struct bf16_rows k = {.heads = kv_heads, .head = head / (c->dim[AT_H] / kv_heads), .D = D, .width = width};
    look(&s, (int32_t *)c->data[FWD_FIRST] + row, (int32_t *)c->data[FWD_LAST] + row, q.count);
    for (int i = 0; i < heads; i++, q.head++) {
        forward_begin(&f, i, c, q.head, width);
        bf16_pack_columns_paired(f.query[i], &q);
    }
    for (k.begin = s.low; k.begin <= s.high; k.begin += TILE_K) {
        k.count = min(s.high + 1 - k.begin, TILE_K);
        k.rows = round_up(k.count, BF16_STEP);
        k.x = c->data[FWD_K];
        bf16_pack(f.key, &k);
        k.x = c->data[FWD_V];
        bf16_pack_columns(f.value_columns, &k);
        for (int i = 0; i < heads; i++) {
            unit->multiply(&(struct bf16_product){f.score, f.key, f.query[i], k.rows, TILE_Q, width, false});
            if (cap > 0)
                cap_columns(f.score, k.rows * TILE_Q, scale, cap);
            for (int v = 0; v < 2; v++)
                soften(&f, i, &s, v, k.begin, k.rows, width, score_unit);
            unit->multiply(&(struct bf16_product){f.y[i], f.value_columns, f.weight, width, TILE_Q, k.rows, true});
        }
    }
    q.x = c->data[FWD_Y];
    q.head = head;
    for (int i = 0; i < heads; i++, q.head++)
        forward_end(&f, i, c, &q);
}

/* Rows g, g + 1, … of a grid of (tiles, heads) that are of one tile and one kv-head, HEADS at most. */
static int together(const struct call *c, int64_t g, int64_t end)
{
    int64_t group = c->dim[AT_H] / c->dim[AT_K];
    return (int)min(min(group - g % c->dim[AT_H] % group, HEADS), end - g);
}

void attention_bf16_forward(const struct bf16_unit *unit, const struct call *c, int64_t begin, int64_t end)
{
    unit->begin();
    for (int64_t g = begin, heads; g < end; g += heads) {
        heads = together(c, g, end);
        forward(unit, c, g / c->dim[AT_H] * TILE_Q, g % c->dim[AT_H], (int)heads);
    }
    unit->end();
}

#endif
