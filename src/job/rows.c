/* Opening the rows of a run, and dealing them out to its steps. */
#include "job/rows.h"

#include <math.h>

#include "base/cache_path.h"
#include "base/number.h"
#include "data/split_files.h"
#include "job/schedule.h"
#include "job/settings.h"

enum { WINDOW_DEFAULT = 1024 }; /* of packing */

enum status rows_limits(struct data_limits *limits, const struct options *o, int64_t window, int64_t vocabulary,
                        struct arena *arena)
{
    static const enum data_excess excess[] = {[CHOICE_excess_length_error] = EXCESS_ERROR,
                                              [CHOICE_excess_length_truncate] = EXCESS_TRUNCATE,
                                              [CHOICE_excess_length_split] = EXCESS_SPLIT,
                                              [CHOICE_excess_length_drop] = EXCESS_DROP};
    *limits = (struct data_limits){
        .max_tokens = o->max_length ? o->max_length : window,
        .is_window = !o->max_length,
        .excess = excess[o->excess_length],
        .skip_bad = o->bad_rows == CHOICE_bad_rows_skip,
        .vocabulary = vocabulary,
        .all_tokens = o->train_on_inputs,
        .raw = o->raw,
        .columns = o->column_mapping,
        .model_dir = o->model_name_or_path,
        .cache_dir = cache_directory(arena, o->cache_dir),
    };
    return settings_check_length(o, window);
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

static enum status rows_open_data(struct rows *r, const struct options *o, struct data_limits *limits, struct arena *arena)
{
    bool own = false;
    limits->split = "train";
    TRY(data_open(&r->data, o->dataset_path, &r->chat, limits));
    if (o->max_samples)
        TRY(data_head(&r->data, o->max_samples));
    if (o->val_set_size > 0)
        return data_split(&r->data, &r->eval_data, o->val_set_size, (uint64_t)o->seed);
    if (!o->eval_dataset_path)
        TRY(split_has(arena, o->dataset_path, "valid", &own));
    limits->split = "valid";
    const char *paths = own ? o->dataset_path : o->eval_dataset_path;
    if (paths)
        TRY(data_open(&r->eval_data, paths, &r->chat, limits));
    return paths && o->max_samples ? data_head(&r->eval_data, o->max_samples) : OK;
}

/* Ranks of one machine share its cache of tokens: the first of them makes it, then the others find it. */
static enum status open_in_turn(struct rows *r, const struct job *j, struct group *group, int64_t moment)
{
    struct arena arena = {0};
    struct data_limits limits;
    bool first = !group || group->local_rank == 0;
    enum status status = rows_limits(&limits, j->options, j->window, j->vocabulary, &arena);
    limits.moment = moment;
    if (status == OK && first && j->options->dataset_path)
        status = rows_open_data(r, j->options, &limits, &arena);
    status = group_agree(group, status);
    if (status == OK && !first && j->options->dataset_path)
        status = rows_open_data(r, j->options, &limits, &arena);
    arena_free(&arena);
    return status;
}

static enum status open_sampler(struct rows *r, const struct job *j)
{
    const struct options *o = j->options;
    int64_t window = 0;
    if (!r->data.row_count)
        return OK;
    if (o->packing) {
        window = o->max_length ? o->max_length : j->window > WINDOW_DEFAULT ? WINDOW_DEFAULT : 0;
        window = max(window, r->data.longest);
    }
    TRY(sampler_init(&r->sampler, &r->data, (uint64_t)o->seed, o->shuffle, window, j->step_rows));
    r->steps_per_epoch = sampler_steps(&r->sampler);
    r->steps = rows_steps(r, o->max_steps, o->num_train_epochs);
    return OK;
}

/* Closes what was opened if it failed. */
static enum status rows_opened(struct rows *r, enum status status)
{
    if (status != OK)
        rows_close(r);
    return status;
}

enum status rows_open_none(struct rows *r, struct group *group)
{
    *r = (struct rows){0};
    return rank_split_open(&r->split, group_rank(group), group_size(group));
}

enum status rows_open(struct rows *r, const struct job *j, struct group *group, int64_t moment)
{
    enum status status = rows_open_none(r, group);
    if (status == OK)
        status = open_in_turn(r, j, group, moment);
    if (status == OK)
        status = open_sampler(r, j);
    if (status == OK && r->data.row_count)
        status = schedule_check(j->options, r->steps);
    return rows_opened(r, status);
}

enum status rows_open_synthetic(struct rows *r, const struct job *j, struct group *group, int64_t tokens)
{
    enum status status = rows_open_none(r, group);
    if (status == OK)
        status = data_make_up(&r->data, j->step_rows, tokens, j->vocabulary, (uint64_t)j->options->seed);
    if (status == OK)
        status = open_sampler(r, j);
    return rows_opened(r, status);
}

void rows_close(struct rows *r)
{
    sampler_free(&r->sampler);
    data_close(&r->eval_data);
    data_close(&r->data);
    chat_close(r->chat);
    rank_split_close(&r->split);
    *r = (struct rows){0};
}

enum status rows_chat(struct rows *r, const struct job *j, int64_t moment)
{
    if (r->chat)
        return OK;
    TRY(chat_open(&r->chat, j->options->model_name_or_path));
    chat_set_moment(r->chat, moment);
    return OK;
}

void rows_drop_chat(struct rows *r)
{
    chat_close(r->chat);
    r->chat = NULL;
}

/* --- steps ------------------------------------------------------------------------------------------------------------------ */

int64_t rows_steps(const struct rows *r, int64_t max_steps, double epochs)
{
    double steps = ceil(epochs * (double)r->steps_per_epoch - 1e-9);
    return max_steps ? max_steps : steps < 1 ? 1 : steps < 1e15 ? (int64_t)steps : (int64_t)1e15;
}

struct interval rows_evals(const struct rows *r, const struct options *o)
{
    return (struct interval){.steps = o->eval_steps, .per_epoch = o->evals_per_epoch, .epoch = r->steps_per_epoch};
}

struct interval rows_saves(const struct rows *r, const struct options *o)
{
    return (struct interval){.steps = o->save_steps, .per_epoch = o->saves_per_epoch, .epoch = r->steps_per_epoch};
}

enum status rows_of_step(struct rows *r, int64_t step, const int64_t **rows, int64_t *count)
{
    struct rank_split *s = &r->split;
    TRY(sampler_step(&r->sampler, step, rows, count));
    if (s->ranks == 1)
        return OK;
    rank_split_begin(s);
    for (int64_t i = 0; i < *count; i++)
        TRY(rank_split_add(s, r->data.rows[(*rows)[i]].count));
    TRY(rank_split_end(s));
    *count = s->count;
    return OK;
}

int64_t rows_mine(const struct rows *r, int64_t i)
{
    return r->split.ranks > 1 ? r->split.mine[i] : i;
}
