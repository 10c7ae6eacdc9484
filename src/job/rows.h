/* What a run trains on: rows of tokens, those that are held back to validate on, and which of them each step takes. Of a step's
 * rows, a rank has its share. */
#ifndef JOB_ROWS_H
#define JOB_ROWS_H

#include "base/interval.h"
#include "data/sampler.h"
#include "dist/dist.h"
#include "job/job.h"
#include "job/rank_split.h"
#include "text/chat/chat.h"

struct rows {
    struct chat *chat;           /* NULL until text is encoded */
    struct data data, eval_data; /* row_count 0: none */
    struct sampler sampler;
    int64_t steps_per_epoch, steps; /* 0 and SCHEDULE_ENDLESS without data */
    struct rank_split split;        /* of this rank */
};

/* Encodes the rows that the options name, or takes them from the cache, which ranks of one machine do in turn. `moment`: the date
 * that templates are given. `group`: NULL for a single process. */
enum status rows_open(struct rows *r, const struct job *j, struct group *group, int64_t moment);

/* Synthetic rows of so many tokens each, one step of them. */
enum status rows_open_synthetic(struct rows *r, const struct job *j, struct group *group, int64_t tokens);

/* None: of programs that will be given their rows, or are only listed. */
enum status rows_open_none(struct rows *r, struct group *group);
void rows_close(struct rows *r);

/* The tokenizer and the template of the job's model, opened when they are first needed. */
enum status rows_chat(struct rows *r, const struct job *j, int64_t moment);

/* Frees them: a tokenizer is large, and not needed once rows are encoded. */
void rows_drop_chat(struct rows *r);

/* The rows of a step that this rank takes are rows[rows_mine(r, i)] for i below *count. */
enum status rows_of_step(struct rows *r, int64_t step, const int64_t **rows, int64_t *count);
int64_t rows_mine(const struct rows *r, int64_t i);

/* How many steps a run over these rows has: the options max_steps, or if it is 0 num_train_epochs. */
int64_t rows_steps(const struct rows *r, int64_t max_steps, double epochs);

/* How often the run validates, and answers its prompts; and how often it saves. */
struct interval rows_evals(const struct rows *r, const struct options *o);
struct interval rows_saves(const struct rows *r, const struct options *o);

/* How the options say to read data for a model. Texts are the options' or in the arena; the caller sets `split`. */
enum status rows_limits(struct data_limits *limits, const struct options *options, int64_t window, int64_t vocabulary,
                        struct arena *arena);

#endif
