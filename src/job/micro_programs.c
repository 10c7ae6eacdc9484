/* The programs of micro-batches: which sizes a run's steps need, and which of them a micro-batch takes. */
#include "base/number.h"
#include "job/build.h"
#include "run/batch.h"

enum { SIZE_STEP = 16, STEPS_LOOKED_AT = 1 << 20 };

bool micro_same_lists(const struct build *b)
{
    const struct group *g = b->session.device->group;
    const struct engine *e = &b->session.engine;
    return g && g->class->device_memory && (e->gather.wanted || e->scatter.kind != SCATTER_NONE);
}

/* Token slots of a size: all, seven eighths, … or one eighth of the largest. */
static int64_t micro_programs_size_of(const struct build *b, int size)
{
    return round_up(b->slots * (SIZES_T - size) / SIZES_T, SIZE_STEP);
}

static int smallest_size(const struct build *b, int64_t tokens)
{
    int size = 0;
    while (size + 1 < SIZES_T && tokens <= micro_programs_size_of(b, size + 1))
        size++;
    return size;
}

static int rows_size(int64_t T, int64_t targets)
{
    return SIZES_R - (int)(batch_rows(T, targets) * SIZES_R / T);
}

int64_t micro_take(const struct build *b, const struct sequence *sequences, int64_t count, int64_t *tokens, int64_t *targets)
{
    int64_t n = 0;
    *tokens = *targets = 0;
    while (n < count && *tokens + sequences[n].count <= b->slots) {
        *tokens += sequences[n].count;
        *targets += sequence_targets(&sequences[n]);
        n++;
    }
    return n;
}

/* A smaller program that happens to need more memory than the largest is left out: the plan is that of the largest. */
static enum status micro_programs_want(struct build *b, enum loss_id loss, int size, int rows)
{
    int64_t T = micro_programs_size_of(b, size), *program = &b->micro.program[loss][size][rows];
    if (*program != MICRO_UNKNOWN)
        return OK;
    return session_add_within(&b->session, loss, T, T * (SIZES_R - rows) / SIZES_R, b->micro.program[loss][0][0], program);
}

/* Only the largest of a loss where ranks run the same lists. */
static enum status add_loss(struct build *b, enum loss_id loss)
{
    TRY(session_add_training(&b->session, loss, b->slots, b->slots, &b->micro.program[loss][0][0]));
    for (int size = 0; size < SIZES_T && !micro_same_lists(b); size++)
        for (int rows = 0; rows < SIZES_R; rows++)
            TRY(micro_programs_want(b, loss, size, rows));
    return OK;
}

enum status micro_pack(struct build *b, int64_t step, micro_visit *visit, void *context)
{
    const int64_t *rows;
    int64_t count, tokens = 0, targets = 0;
    TRY(rows_of_step(b->rows, step, &rows, &count));
    for (int64_t i = 0; i <= count; i++) {
        const struct token_row *row = i < count ? &b->rows->data.rows[rows[rows_mine(b->rows, i)]] : NULL;
        if (!row || tokens + row->count > b->slots) {
            TRY(visit(b, tokens, targets, context));
            tokens = targets = 0;
        }
        tokens += row ? row->count : 0;
        targets += row ? row->trained : 0;
    }
    return OK;
}

static enum status note_need(struct build *b, int64_t tokens, int64_t targets, void *context)
{
    int64_t(*needed)[SIZES_R] = context;
    int size = smallest_size(b, tokens);
    needed[size][rows_size(micro_programs_size_of(b, size), targets)] = 1;
    return OK;
}

/* Found by packing all steps; for a very long run, every program. */
enum status build_add_sizes(struct build *b)
{
    bool all = !b->rows->data.row_count || b->rows->steps > STEPS_LOOKED_AT;
    int64_t needed[SIZES_T][SIZES_R] = {{0}};
    for (int loss = 0; loss < LOSS_COUNT; loss++)
        if (loss != (int)b->job->loss && b->job->losses & LOSS_BIT(loss))
            TRY(add_loss(b, (enum loss_id)loss));
    if (micro_same_lists(b))
        return OK;
    for (int64_t step = 0; !all && step < b->rows->steps; step++) {
        TRY(micro_pack(b, step, note_need, needed));
        if (step % 4096 == 0)
            data_rest(&b->rows->data);
    }
    for (int size = 0; size < SIZES_T; size++)
        for (int rows = 0; rows < SIZES_R; rows++)
            if (all || needed[size][rows])
                TRY(micro_programs_want(b, b->job->loss, size, rows));
    return OK;
}

int64_t micro_program(const struct build *b, enum loss_id loss, int64_t tokens, int64_t targets)
{
    const int64_t(*program)[SIZES_R] = b->micro.program[loss];
    for (int size = smallest_size(b, tokens); size > 0; size--)
        for (int rows = rows_size(micro_programs_size_of(b, size), targets); rows >= 0; rows--)
            if (program[size][rows] >= 0)
                return program[size][rows];
    int rows = rows_size(micro_programs_size_of(b, 0), targets);
    while (program[0][rows] < 0)
        rows--;
    return program[0][rows];
}
