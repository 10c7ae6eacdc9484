/* gated_delta_bwd: the backward pass of the gated delta rule (gated_delta.c), chunk by chunk from the last one.
 *
 * With S before a chunk, dS' the gradient of the state after it, e[i] = exp(γ[i]) and l[j] = exp(γ[last] − γ[j]):
 *
 *     du[j] = Σ_{i>=j} P[i, j] · dy[i] + l[j] · dS'ᵀ·k̂[j] − Σ_{i>j} A[i, j] · β[i] · du[i]        dv = dw = β · du, dβ = du·w
 *     dS = e[last] · dS' + Σ_i e[i] · (q̂[i] · dy[i]ᵀ − k̂[i] · dw[i]ᵀ)
 *
 * as a scan over columns, as in the forward pass. Then, for all chunks side by side, with the pairs
 * XP[i, j] = exp(γ[i] − γ[j]) · dy[i]·u[j] and XA[i, j] = −exp(γ[i] − γ[j]) · dw[i]·u[j]:
 *
 *     query[i]  = e[i] · S·dy[i] + Σ_{j<i} XP[i, j] · k̂[j]                                    dq̂ = query + XP[i, i] · k̂[i]
 *     row[i]    = −e[i] · S·dw[i] + Σ_{j<i} XA[i, j] · k̂[j]                                   dk̂ = row + column + XP[i, i] · q̂[i]
 *     column[i] = l[i] · dS'·u[i] + Σ_{m>i} XP[m, i] · q̂[m] + Σ_{m>i} XA[m, i] · k̂[m]
 *     dγ[i]     = q̂[i]·query[i] + k̂[i]·(row[i] − column[i]), and for the last token of a chunk + dS'·S'
 *
 * The parts of a token with itself, which no decay reduces, would cancel in dγ: they are added after it. dg[i] is the sum of dγ
 * from i to the end of the chunk or of the sequence. The gradients of a key head's q̂ and k̂ are summed over its value heads, and
 * go through the norms: dq = r · (d − q̂ · (q̂·d)).
 */
#include "ops/delta/gated_delta.h"

enum { X, GATES, FIRST, LAST, STAT, W, STATES, PAIRS, DY };
enum { DX, DGATES };
enum { KEY_HEADS, KEY_SIZE }; /* number */
enum { SCAN_X, SCAN_GATES, SCAN_FIRST, SCAN_LAST, SCAN_STAT, SCAN_PAIRS, SCAN_DY, SCAN_DU, SCAN_DSTATES, SCAN_OPERANDS };
enum { XP_GATES, XP_FIRST, XP_LAST, XP_STAT, XP_W, XP_DY, XP_DU, XP_PAIRS, XP_OPERANDS };
enum {
    KEY_X,
    KEY_GATES,
    KEY_FIRST,
    KEY_LAST,
    KEY_STAT,
    KEY_STATES,
    KEY_DSTATES,
    KEY_W,
    KEY_DY,
    KEY_DU,
    KEY_PAIRS,
    KEY_GRADS,
    KEY_OPERANDS
};
enum { TOKEN_X, TOKEN_GATES, TOKEN_STAT, TOKEN_W, TOKEN_DU, TOKEN_GRADS, TOKEN_DX, TOKEN_DGATES, TOKEN_OPERANDS };
enum { DECAY_FIRST, DECAY_LAST, DECAY_STATES, DECAY_DSTATES, DECAY_DGATES, DECAY_OPERANDS };
enum { UNIT_X, UNIT_STAT, UNIT_PAIRS, UNIT_GRADS, UNIT_DX, UNIT_OPERANDS };
enum { GRAD_Q, GRAD_ROW, GRAD_COLUMN, GRADS }; /* in grads (3, T, H, DK) */
enum { TOKEN_BLOCK = 16 };

/* --- scan: du of every token, and the gradient of the state after every chunk
 * --------------------------------------------------- */

struct columns {
    int64_t head, from, count, width;
    state_tile state; /* dS' */
    rows_tile keys, queries, turned, dy, du;
    pairs_tile pairs;
    real enter[CHUNK], left[CHUNK];
};

/* du is complete when its turn comes, from the last token on; dw takes its place. */
static ALWAYS_INLINE void substitute(const struct call *c, struct columns *s, const struct chunk *k)
{
    for (int64_t i = k->count - 1; i >= 0; i--) {
        real *du = s->du + i * s->width, beta = chunk_beta(k, i);
        memcpy((real *)c->data[SCAN_DU] + ((k->begin + i) * c->dim[DL_H] + s->head) * c->dim[DL_DV] + s->from, du,
               (size_t)s->count * sizeof *du);
        for (int64_t d = 0; d < s->width; d++)
            du[d] *= beta;
        for (int64_t j = 0; j < i; j++)
            for (int64_t d = 0; d < s->width; d++)
                s->du[j * s->width + d] -= s->pairs[i * CHUNK + j] * du[d];
    }
}

static ALWAYS_INLINE void gated_delta_bwd_scan_chunk(const struct call *c, struct columns *s, const struct chunk *k,
                                                     enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t size = dim[DL_DK], wide = pad_lanes(size), rows = round_up(k->count, 4), tall = round_up(size, 4);
    for (int64_t i = 0; i < k->count; i++) {
        s->enter[i] = chunk_enter(k, i);
        s->left[i] = chunk_decay(k, k->count - 1, i);
    }
    chunk_units(s->queries, wide, k, c->data[SCAN_X], c->data[SCAN_STAT], 0, dt);
    chunk_units(s->keys, wide, k, c->data[SCAN_X], c->data[SCAN_STAT], 1, dt);
    chunk_rows(s->dy, s->width, k, c->data[SCAN_DY], dim[DL_H] * dim[DL_DV], s->head * dim[DL_DV] + s->from, s->count, dt);
    tile_multiply(s->du, s->width, s->keys, wide, s->state, s->width, rows, s->width, size, false);
    for (int64_t i = 0; i < k->count; i++)
        for (int64_t d = 0; d < s->width; d++)
            s->du[i * s->width + d] *= s->left[i];
    chunk_pairs(s->pairs, k, c->data[SCAN_PAIRS], 1, true);
    tile_multiply(s->du, s->width, s->pairs, CHUNK, s->dy, s->width, rows, s->width, k->count, true);
    chunk_pairs(s->pairs, k, c->data[SCAN_PAIRS], 0, false);
    substitute(c, s, k);
    for (int64_t i = 0; i < size * s->width; i++)
        s->state[i] *= s->enter[k->count - 1];
    chunk_turn(s->turned, k, s->queries, wide, size, s->enter, 1);
    tile_multiply(s->state, s->width, s->turned, CHUNK, s->dy, s->width, tall, s->width, k->count, true);
    chunk_turn(s->turned, k, s->keys, wide, size, s->enter, -1);
    tile_multiply(s->state, s->width, s->turned, CHUNK, s->du, s->width, tall, s->width, k->count, true);
}

static ALWAYS_INLINE void gated_delta_bwd_scan_columns(const struct call *c, int64_t head, int64_t from, int64_t count,
                                                       enum dtype dt)
{
    const int64_t *dim = c->dim;
    struct columns s = {.head = head, .from = from, .count = count, .width = pad_lanes(count)};
    for (int64_t i = delta_chunks(dim) - 1; i >= 0; i--) {
        struct chunk k = chunk_of(c, i * CHUNK, dim[DL_T], head, SCAN_FIRST, SCAN_LAST, SCAN_STAT, SCAN_GATES);
        for (int64_t d = 0; d < dim[DL_DK]; d++)
            memcpy((real *)c->data[SCAN_DSTATES] + ((i * dim[DL_H] + head) * dim[DL_DK] + d) * dim[DL_DV] + from,
                   s.state + d * s.width, (size_t)count * sizeof(real));
        gated_delta_bwd_scan_chunk(c, &s, &k, dt);
    }
}

/* A row of the grid is a column of a head's state. */
KERNEL_BODY(gated_delta_backward_scan)
{
    int64_t size = c->dim[DL_DV];
    for (int64_t at = begin, next; at < end; at = next) {
        next = min(end, (at / size + 1) * size);
        gated_delta_bwd_scan_columns(c, at / size, at % size, next - at, c->dtype[SCAN_X]);
    }
}

/* --- XA and XP of a head of a chunk
 * --------------------------------------------------------------------------------------------- */

/* Rows of du times β, or of w times β. */
static ALWAYS_INLINE void beta_rows(real *to, int64_t width, const struct chunk *k, const void *from)
{
    int64_t size = k->dim[DL_DV];
    chunk_rows(to, width, k, from, k->dim[DL_H] * size, k->head * size, size, WIDE);
    for (int64_t i = 0; i < k->count; i++)
        for (int64_t d = 0; d < width; d++)
            to[i * width + d] *= chunk_beta(k, i);
}

static ALWAYS_INLINE void gated_delta_bwd_pairs_of_chunk(const struct call *c, int64_t row, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t size = dim[DL_DV], width = pad_lanes(size), begin = row / dim[DL_H] * CHUNK;
    struct chunk k = chunk_of(c, begin, dim[DL_T], row % dim[DL_H], XP_FIRST, XP_LAST, XP_STAT, XP_GATES);
    int64_t rows = round_up(k.count, 4);
    rows_tile dy, dw, u, turned;
    pairs_tile p, a;
    chunk_rows(dy, width, &k, c->data[XP_DY], dim[DL_H] * size, k.head * size, size, dt);
    beta_rows(dw, width, &k, c->data[XP_DU]);
    beta_rows(u, width, &k, c->data[XP_W]);
    chunk_turn(turned, &k, u, width, size, NULL, 1);
    tile_multiply(p, CHUNK, dy, width, turned, CHUNK, rows, CHUNK, size, false);
    tile_multiply(a, CHUNK, dw, width, turned, CHUNK, rows, CHUNK, size, false);
    for (int64_t i = 0; i < k.count; i++) {
        real *to = (real *)c->data[XP_PAIRS] + ((begin + i) * dim[DL_H] + k.head) * 2 * CHUNK;
        for (int64_t j = 0; j < CHUNK; j++) {
            real decay = j <= i ? chunk_decay(&k, i, j) : 0;
            to[j] = j < i ? -decay * a[i * CHUNK + j] : 0;
            to[CHUNK + j] = j <= i ? decay * p[i * CHUNK + j] : 0;
        }
    }
}

KERNEL_BODY(gated_delta_backward_pairs)
{
    for (int64_t row = begin; row < end; row++)
        gated_delta_bwd_pairs_of_chunk(c, row, c->dtype[XP_DY]);
}

/* --- the gradients of q̂ and k̂ of a head of a chunk
 * --------------------------------------------------------------------------------- */

struct units {
    int64_t width;
    state_tile turned; /* Sᵀ, or dS'ᵀ */
    rows_tile keys, queries, values, sum;
    pairs_tile pairs;
};

static ALWAYS_INLINE void turn_state(struct units *s, const struct chunk *k, const real *states)
{
    int64_t size = k->dim[DL_DK], values = k->dim[DL_DV];
    const real *from = states + (k->begin / CHUNK * k->dim[DL_H] + k->head) * size * values;
    for (int64_t d = 0; d < values; d++)
        for (int64_t i = 0; i < s->width; i++)
            s->turned[d * s->width + i] = i < size ? from[i * values + d] : 0;
}

/* sum = factor · values · turned */
static ALWAYS_INLINE void through_state(struct units *s, const struct chunk *k, const real *factor, real scale)
{
    tile_multiply(s->sum, s->width, s->values, pad_lanes(k->dim[DL_DV]), s->turned, s->width, round_up(k->count, 4), s->width,
                  k->dim[DL_DV], false);
    for (int64_t i = 0; i < k->count; i++)
        for (int64_t d = 0; d < s->width; d++)
            s->sum[i * s->width + d] *= scale * factor[i];
}

/* sum += the pairs of different tokens · rows */
static ALWAYS_INLINE void gated_delta_bwd_add_pairs(struct units *s, const struct chunk *k, const real *pairs, int which,
                                                    bool transposed, const real *rows)
{
    chunk_pairs(s->pairs, k, pairs, which, transposed);
    for (int64_t i = 0; i < k->count; i++)
        s->pairs[i * CHUNK + i] = 0;
    tile_multiply(s->sum, s->width, s->pairs, CHUNK, rows, s->width, round_up(k->count, 4), s->width, k->count, true);
}

static ALWAYS_INLINE void gated_delta_bwd_put(const struct call *c, const struct units *s, const struct chunk *k, int which)
{
    const int64_t *dim = c->dim;
    for (int64_t i = 0; i < k->count; i++)
        memcpy((real *)c->data[KEY_GRADS] + ((which * dim[DL_T] + k->begin + i) * dim[DL_H] + k->head) * dim[DL_DK],
               s->sum + i * s->width, (size_t)dim[DL_DK] * sizeof(real));
}

static ALWAYS_INLINE void keys_of_chunk(const struct call *c, int64_t row, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t width = pad_lanes(dim[DL_DV]);
    struct chunk k = chunk_of(c, row / dim[DL_H] * CHUNK, dim[DL_T], row % dim[DL_H], KEY_FIRST, KEY_LAST, KEY_STAT, KEY_GATES);
    real enter[CHUNK], left[CHUNK];
    struct units s;
    s.width = pad_lanes(dim[DL_DK]);
    for (int64_t i = 0; i < k.count; i++) {
        enter[i] = chunk_enter(&k, i);
        left[i] = chunk_decay(&k, k.count - 1, i);
    }
    chunk_units(s.queries, s.width, &k, c->data[KEY_X], c->data[KEY_STAT], 0, dt);
    chunk_units(s.keys, s.width, &k, c->data[KEY_X], c->data[KEY_STAT], 1, dt);
    turn_state(&s, &k, c->data[KEY_STATES]);
    chunk_rows(s.values, width, &k, c->data[KEY_DY], dim[DL_H] * dim[DL_DV], k.head * dim[DL_DV], dim[DL_DV], dt);
    through_state(&s, &k, enter, 1);
    gated_delta_bwd_add_pairs(&s, &k, c->data[KEY_PAIRS], 1, false, s.keys);
    gated_delta_bwd_put(c, &s, &k, GRAD_Q);
    beta_rows(s.values, width, &k, c->data[KEY_DU]);
    through_state(&s, &k, enter, -1);
    gated_delta_bwd_add_pairs(&s, &k, c->data[KEY_PAIRS], 0, false, s.keys);
    gated_delta_bwd_put(c, &s, &k, GRAD_ROW);
    turn_state(&s, &k, c->data[KEY_DSTATES]);
    beta_rows(s.values, width, &k, c->data[KEY_W]);
    through_state(&s, &k, left, 1);
    gated_delta_bwd_add_pairs(&s, &k, c->data[KEY_PAIRS], 1, true, s.queries);
    gated_delta_bwd_add_pairs(&s, &k, c->data[KEY_PAIRS], 0, true, s.keys);
    gated_delta_bwd_put(c, &s, &k, GRAD_COLUMN);
}

KERNEL_BODY(gated_delta_backward_keys)
{
    for (int64_t row = begin; row < end; row++)
        keys_of_chunk(c, row, c->dtype[KEY_X]);
}

/* --- dγ, dβ and dv of every token
 * ------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_tokens(const struct call *c, int64_t row, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t t = row / dim[DL_H], head = row % dim[DL_H], key = head / (dim[DL_H] / dim[DL_K]), size = dim[DL_DK];
    const real *stat = (const real *)c->data[TOKEN_STAT] + t * delta_stat(dim), *grads = c->data[TOKEN_GRADS];
    const real *du = (const real *)c->data[TOKEN_DU] + row * dim[DL_DV];
    real *dgates = (real *)c->data[TOKEN_DGATES] + t * 2 * dim[DL_H] + head;
    real beta = ((const real *)c->data[TOKEN_GATES])[t * 2 * dim[DL_H] + dim[DL_H] + head], sum_q = 0, sum_k = 0;
    int64_t whole = dim[DL_T] * dim[DL_H] * size, at = t * delta_channels(dim),
            to = at + 2 * dim[DL_K] * size + head * dim[DL_DV];
    for (int64_t d = 0; d < size; d++) {
        sum_q += load(dt, c->data[TOKEN_X], at + key * size + d) * grads[row * size + d];
        sum_k += load(dt, c->data[TOKEN_X], at + (dim[DL_K] + key) * size + d) *
                 (grads[GRAD_ROW * whole + row * size + d] - grads[GRAD_COLUMN * whole + row * size + d]);
    }
    dgates[0] = sum_q * stat[key] / real_sqrt((real)size) + sum_k * stat[dim[DL_K] + key];
    dgates[dim[DL_H]] = dot(du, 0, c->data[TOKEN_W], row * dim[DL_DV], dim[DL_DV], WIDE, WIDE);
    for (int64_t d = 0; d < dim[DL_DV]; d++)
        store(dt, c->data[TOKEN_DX], to + d, beta * du[d]);
}

/* A row of the grid is one head of one token. */
KERNEL_BODY(gated_delta_backward_tokens)
{
    for (int64_t row = begin; row < end; row++)
        SPECIALISE(c->dtype[TOKEN_X], body_tokens, c, row);
}

/* --- dg from dγ
 * --------------------------------------------------------------------------------------------------------------------- */

/* A row of the grid is one head of one chunk. */
KERNEL_BODY(gated_delta_backward_decay)
{
    const int64_t *dim = c->dim;
    const int32_t *first = c->data[DECAY_FIRST], *last = c->data[DECAY_LAST];
    int64_t size = dim[DL_DK] * dim[DL_DV];
    for (int64_t row = begin; row < end; row++) {
        int64_t chunk = row / dim[DL_H], head = row % dim[DL_H];
        real sum = 0;
        if (chunk + 1 < delta_chunks(dim))
            sum = dot(c->data[DECAY_DSTATES], row * size, c->data[DECAY_STATES], (row + dim[DL_H]) * size, size, WIDE, WIDE);
        for (int64_t t = min(dim[DL_T], (chunk + 1) * CHUNK) - 1; t >= chunk * CHUNK; t--) {
            real *dg = (real *)c->data[DECAY_DGATES] + t * 2 * dim[DL_H] + head;
            bool starts = first[t] == last[t];
            sum += *dg;
            *dg = starts ? 0 : sum;
            sum = starts ? 0 : sum;
        }
    }
}

/* --- dq and dk
 * -------------------------------------------------------------------------------------------------------------------- */

static ALWAYS_INLINE void body_units(const struct call *c, int64_t row, enum dtype dt)
{
    const int64_t *dim = c->dim;
    int64_t size = dim[DL_DK], t = row / (2 * dim[DL_K]), at = row % (2 * dim[DL_K]), key = at % dim[DL_K];
    int64_t group = dim[DL_H] / dim[DL_K], whole = dim[DL_T] * dim[DL_H] * size, from = t * delta_channels(dim) + at * size;
    bool is_key = at >= dim[DL_K];
    int64_t other = is_key ? key : dim[DL_K] + key;
    const real *stat = (const real *)c->data[UNIT_STAT] + t * delta_stat(dim);
    real r = stat[at], d[DELTA_MAX] = {0}, along = 0, self = 0, scale = 1 / real_sqrt((real)size);
    for (int64_t h = key * group; h < (key + 1) * group; h++) {
        const real *grads = (const real *)c->data[UNIT_GRADS] + (t * dim[DL_H] + h) * size;
        self += ((const real *)c->data[UNIT_PAIRS])[((t * dim[DL_H] + h) * 2 + 1) * CHUNK + t % CHUNK];
        for (int64_t i = 0; i < size; i++)
            d[i] += is_key ? grads[GRAD_ROW * whole + i] + grads[GRAD_COLUMN * whole + i] : grads[GRAD_Q * whole + i] * scale;
    }
    for (int64_t i = 0; i < size; i++)
        d[i] += self * scale * stat[other] * load(dt, c->data[UNIT_X], t * delta_channels(dim) + other * size + i);
    for (int64_t i = 0; i < size; i++)
        along += load(dt, c->data[UNIT_X], from + i) * r * d[i];
    for (int64_t i = 0; i < size; i++)
        store(dt, c->data[UNIT_DX], from + i, r * (d[i] - load(dt, c->data[UNIT_X], from + i) * r * along));
}

/* A row of the grid is the query or key of one key head of one token. */
KERNEL_BODY(gated_delta_backward_units)
{
    for (int64_t row = begin; row < end; row++)
        SPECIALISE(c->dtype[UNIT_X], body_units, c, row);
}

/* --- the op -------------------------------------------------------------------------------------------------------------------
 */

#define DELTA_KERNEL(part, group_size, row_count)                                                                                \
    {                                                                                                                            \
        SIGNATURE_gated_delta_bwd_##part, .host = gated_delta_backward_##part, .group = group_size, .rows = row_count,           \
                                          .defines = DEFINE(CHUNK)                                                               \
    }

static const struct kernel kernel_scan = DELTA_KERNEL(scan, 64, 64), kernel_pairs = DELTA_KERNEL(pairs, 128, 1),
                           kernel_keys = DELTA_KERNEL(keys, 128, 1), kernel_tokens = DELTA_KERNEL(tokens, 64, 1),
                           kernel_decay = DELTA_KERNEL(decay, 128, 1), kernel_units = DELTA_KERNEL(units, 64, 1);

static enum status shape(struct program *p, struct node *n)
{
    int64_t *size = n->size;
    TRY(node_expect(n, X, 2, SHAPE(-1, -1)));
    TRY(node_expect(n, GATES, 2, SHAPE(n->in[X]->shape[0], -1)));
    TRY(node_expect(n, STATES, 4, SHAPE(-1, n->in[GATES]->shape[1] / 2, -1, -1)));
    size[DL_T] = n->in[X]->shape[0];
    size[DL_H] = n->in[GATES]->shape[1] / 2;
    size[DL_K] = (int64_t)n->number[KEY_HEADS];
    size[DL_DK] = n->in[STATES]->shape[2];
    size[DL_DV] = n->in[STATES]->shape[3];
    TRY(node_expect(n, DY, 2, SHAPE(size[DL_T], size[DL_H] * size[DL_DV])));
    TRY(node_expect(n, PAIRS, 4, SHAPE(size[DL_T], size[DL_H], 2, CHUNK)));
    node_output(p, n, DX, n->in[X]->dtype, 2, n->in[X]->shape);
    node_output(p, n, DGATES, n->in[GATES]->dtype, 2, n->in[GATES]->shape);
    return program_status(p);
}

static enum status lower(struct lowering *l, const struct node *n)
{
    const int64_t *s = n->size;
    struct value *const *in = n->in, *dx = n->out[DX], *dgates = n->out[DGATES];
    enum dtype wide = l->program->types[ROLE_STATISTIC];
    int64_t chunks = delta_chunks(s) * s[DL_H];
    struct value *du = program_scratch(l->program, wide, 2, in[DY]->shape);
    struct value *dstates = program_scratch(l->program, wide, 4, in[STATES]->shape);
    struct value *pairs = program_scratch(l->program, wide, 4, in[PAIRS]->shape);
    struct value *grads = program_scratch(l->program, wide, 4, SHAPE(GRADS, s[DL_T], s[DL_H], s[DL_DK]));
    TRY(program_status(l->program));
    struct value *scan[] = {in[X], in[GATES], in[FIRST], in[LAST], in[STAT], in[PAIRS], in[DY], du, dstates};
    struct value *of_pairs[] = {in[GATES], in[FIRST], in[LAST], in[STAT], in[W], in[DY], du, pairs};
    struct value *keys[] = {in[X],   in[GATES], in[FIRST], in[LAST], in[STAT], in[STATES],
                            dstates, in[W],     in[DY],    du,       pairs,    grads};
    struct value *tokens[] = {in[X], in[GATES], in[STAT], in[W], du, grads, dx, dgates};
    struct value *decay[] = {in[FIRST], in[LAST], in[STATES], dstates, dgates};
    struct value *units[] = {in[X], in[STAT], pairs, grads, dx};
    TRY(lower_launch(l, &kernel_scan, SCAN_OPERANDS, scan, s, n->number, s[DL_H] * s[DL_DV], s[DL_DV]));
    TRY(lower_launch(l, &kernel_pairs, XP_OPERANDS, of_pairs, s, n->number, chunks, 1));
    TRY(lower_launch(l, &kernel_keys, KEY_OPERANDS, keys, s, n->number, chunks, 1));
    TRY(lower_launch(l, &kernel_tokens, TOKEN_OPERANDS, tokens, s, n->number, s[DL_T] * s[DL_H], TOKEN_BLOCK));
    TRY(lower_launch(l, &kernel_decay, DECAY_OPERANDS, decay, s, n->number, chunks, 1));
    return lower_launch(l, &kernel_units, UNIT_OPERANDS, units, s, n->number, s[DL_T] * 2 * s[DL_K], TOKEN_BLOCK);
}

static struct value *head_input(struct program *p, const char *name, enum role role, int64_t rows, int64_t heads)
{
    return program_input(p, name, role, 2, rows, heads);
}

/* After a forward pass. d: T, value heads of a key head, key heads, DK, DV. */
static struct value *build(struct program *p, const int64_t *d)
{
    int64_t T = d[0], H = d[1] * d[2];
    struct value *gates = delta_gates(p, head_input(p, "a", ROLE_ACTIVATION, T, H), head_input(p, "b", ROLE_ACTIVATION, T, H),
                                      program_input(p, "log", ROLE_WEIGHT, 1, H), program_input(p, "dt", ROLE_WEIGHT, 1, H));
    struct value *y = gated_delta(p, head_input(p, "x", ROLE_ACTIVATION, T, 2 * d[2] * d[3] + H * d[4]), gates,
                                  program_input(p, "first", ROLE_INDEX, 1, T), program_input(p, "last", ROLE_INDEX, 1, T), NULL,
                                  NULL, d[2], d[3]);
    const struct node *n = y ? y->producer : NULL;
    struct value *w =
        n ? program_node(p, OP_gated_delta_states, 5,
                         (struct value *[]){n->in[X], n->in[GATES], n->in[FIRST], n->in[LAST], n->out[1]}, 2, n->number)
          : NULL;
    if (!w)
        return NULL;
    struct value *const *in = n->in, *const *kept = w->producer->out, *dy = head_input(p, "dy", ROLE_ACTIVATION, T, H * d[4]);
    return program_node(p, OP_gated_delta_bwd, 9,
                        (struct value *[]){in[X], in[GATES], in[FIRST], in[LAST], n->out[1], kept[0], kept[1], kept[2], dy}, 2,
                        n->number);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    example_bounds(input, to, count);
}

static const struct op_example examples[] = {
    {.build = build,
     .fill = fill,
     .axes = {{"T", {1, 5, 150}}, {"group", {1, 3}}, {"K", {1, 2}}, {"DK", {8, 40}}, {"DV", {3, 32}}}},
    {0},
};

const struct op OP(gated_delta_bwd) = {
    .name = "gated_delta_bwd",
    .formula = "dx, dgates of gated_delta, chunk by chunk from the last",
    .inputs = {"x", "gates", "first", "last", "stat", "w", "states", "pairs", "dy"},
    .outputs = {"dx", "dgates"},
    .shape = shape,
    .lower = lower,
    .examples = examples,
};
