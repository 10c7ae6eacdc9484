/* Writing down what a run computes with, and comparing it. */
#include "state/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/record.h"
#include "job/loss_names.h"
#include "job/schedule.h"

enum { DIFFERENT_SHOWN = 5 };

#define LOSS_KEY "loss"
#define SETTINGS_KEY "settings"

/* Besides its settings. */
struct fingerprint {
    const char *run, *base, *config, *adapter, *init_adapter, *data, *eval_data, *dtype, *device;
};

static const struct record_field fields[] = {
    RECORD_AS(CHECKPOINT_RUN, struct fingerprint, run),
    RECORD(struct fingerprint, base),
    RECORD(struct fingerprint, config),
    RECORD(struct fingerprint, adapter),
    RECORD(struct fingerprint, init_adapter),
    RECORD(struct fingerprint, data),
    RECORD(struct fingerprint, eval_data),
    RECORD(struct fingerprint, dtype),
    RECORD(struct fingerprint, device),
    {0},
};

static enum status find_fingerprint(struct snapshot *snap, struct fingerprint *n)
{
    struct identity *i = &snap->identity;
    TRY(identity_hash(i, &snap->build->session.model, snap->build->session.tuning.lora, &snap->rows->data,
                      &snap->rows->eval_data));
    *n = (struct fingerprint){i->run,
                              i->base,
                              i->config,
                              i->adapter,
                              i->init_adapter,
                              i->data,
                              i->eval_data,
                              session_dtype(&snap->build->session),
                              snap->build->session.device->class->name};
    return OK;
}

static const char *const data_keys[] = {"data_rows", "data_tokens", "data_trained_tokens", "data_units"};
enum { DATA_KEYS = sizeof data_keys / sizeof data_keys[0] };

static int64_t data_number(const struct snapshot *snap, int key)
{
    return key == 0   ? snap->rows->data.row_count
           : key == 1 ? snap->rows->data.tokens
           : key == 2 ? snap->rows->data.trained
                      : snap->rows->sampler.units;
}

json_t *fingerprint_settings(const struct snapshot *snap)
{
    json_t *chosen = json_object();
    char losses[LOSS_NAMES];
    bool whole = json_object_set_new(chosen, LOSS_KEY, json_string(loss_names(snap->job->losses, losses))) == 0;
    for (enum option o = 0; o < OPTIONS && whole; o++) {
        struct buffer text = {0};
        if (options_decides(o))
            whole = options_get(snap->job->options, o, &text) == OK &&
                    json_object_set_new(chosen, options_name(o), json_string(text.data ? text.data : "")) == 0;
        buffer_free(&text);
    }
    for (int i = 0; i < DATA_KEYS && whole; i++)
        whole = json_object_set_new(chosen, data_keys[i], json_integer((json_int_t)data_number(snap, i))) == 0;
    if (whole)
        return chosen;
    json_decref(chosen);
    return NULL;
}

enum status fingerprint_add(struct snapshot *snap, json_t *tree)
{
    struct fingerprint print;
    TRY(find_fingerprint(snap, &print));
    json_t *identity = record_json(fields, &print);
    bool whole = identity && json_object_update(tree, identity) == 0 &&
                 json_object_set_new(tree, SETTINGS_KEY, fingerprint_settings(snap)) == 0;
    json_decref(identity);
    return whole ? OK : fail(ERR_MEMORY, "out of memory, or a setting that is not UTF-8: the state of a run");
}

static enum status differs(const char *dir, const char *what, const char *was, const char *is)
{
    return fail(
        ERR_ARGUMENT,
        "%s is of a run with %s %s, this one has %s: use the same settings to resume, --resume none to start over, or another "
        "--output",
        dir, what, *was ? was : "(none)", *is ? is : "(none)");
}

static enum status check_same(const json_t *tree, const char *dir, const char *key, const char *is, const char *what)
{
    const char *was = json_string_value(json_object_get(tree, key));
    if (was && strcmp(was, is) == 0)
        return OK;
    return fail(ERR_ARGUMENT, "%s is of a run on %s: use the same to resume, --resume none to start over, or another --output",
                dir, what);
}

static enum status check_model(const struct fingerprint *n, const json_t *tree, const char *dir)
{
    TRY(check_same(tree, dir, "config", n->config, "another base model: its config.json says otherwise than that of --model"));
    TRY(check_same(tree, dir, "adapter", n->adapter,
                   "another adapter: its ranks, scales or modules are not those of this run (--init-adapter)"));
    return check_same(tree, dir, "init_adapter", n->init_adapter,
                      "another adapter: it began with other weights than those of --init-adapter");
}

/* The rows themselves, whatever their files are called. */
static enum status check_rows(const struct fingerprint *n, const json_t *tree, const char *dir)
{
    TRY(check_same(tree, dir, "data", n->data, "other data: its rows are not those of --data, or in another order"));
    return check_same(tree, dir, "eval_data", n->eval_data, "other validation data");
}

/* What computes. */
static enum status check_computes(const struct fingerprint *n, const json_t *tree, const char *dir)
{
    const char *dtype = json_string_value(json_object_get(tree, "dtype")),
               *device = json_string_value(json_object_get(tree, "device"));
    if (strcmp(dtype, n->dtype) != 0)
        return differs(dir, "dtype", dtype, n->dtype);
    if (strcmp(device, n->device) != 0)
        log_message(LOG_WARNING, "%s is of a run on device %s, this one is on %s: it goes on, but not to the same bytes", dir,
                    device, n->device);
    return OK;
}

/* --- a run that is made longer -------------------------------------------------------------------------------------------- */

/* What the length of a run comes from. It may be another one where all steps so far had the learning rates that they have in this
 * run: as a rule those of a constant schedule. */
static bool is_length(enum option o)
{
    return o == OPTION_max_steps || o == OPTION_num_train_epochs;
}

static int64_t steps_before(const struct snapshot *snap, const json_t *chosen)
{
    const char *steps = json_string_value(json_object_get(chosen, options_name(OPTION_max_steps)));
    const char *epochs = json_string_value(json_object_get(chosen, options_name(OPTION_num_train_epochs)));
    return rows_steps(snap->rows, strtoll(steps, NULL, 10), strtod(epochs, NULL));
}

static bool rates_are_same(const struct snapshot *snap, int64_t before, int64_t done)
{
    const struct options *o = snap->job->options;
    struct schedule was, is;
    if (schedule_init(&was, o, before) != OK || schedule_init(&is, o, snap->rows->steps) != OK)
        return false;
    bool last = done == before && !interval_falls_on(rows_evals(snap->rows, o), before), /* it also validated after that step */
        looks = snap->rows->eval_data.row_count && (o->early_stopping_patience || o->load_best_model_at_end);
    bool same = done <= snap->rows->steps && o->sync_every == 1 && !(last && looks); /* those exchange in the last step too */
    for (int64_t step = 1; step <= done && same; step++)
        same = schedule_rate(&was, step) == schedule_rate(&is, step);
    return same;
}

/* Adds an option to the list of those that differ. */
static enum status compare_option(const struct snapshot *snap, enum option o, const json_t *chosen, struct buffer *list,
                                  int *count)
{
    const char *name = options_name(o), *was = json_string_value(json_object_get(chosen, name));
    struct buffer text = {0};
    enum status status = options_get(snap->job->options, o, &text);
    const char *is = text.data ? text.data : "";
    if (status == OK && options_decides(o) && !options_same(o, was, is) && ++*count <= DIFFERENT_SHOWN)
        status = buffer_format(list, "%s%s %s, this one has %s", *count > 1 ? "; " : "", name, *was ? was : "(none)",
                               *is ? is : "(none)");
    buffer_free(&text);
    return status;
}

static enum status compare_options(const struct snapshot *snap, const json_t *tree, const json_t *chosen, const char *dir)
{
    struct buffer list = {0};
    const struct options *now = snap->job->options;
    int64_t before = steps_before(snap, chosen), done = json_integer_value(json_object_get(tree, "step"));
    bool longer = snap->rows->steps > before, may = rates_are_same(snap, before, done);
    int count = 0;
    enum status status = OK;
    for (enum option o = 0; o < OPTIONS && status == OK; o++)
        if (!may || !is_length(o))
            status = compare_option(snap, o, chosen, &list, &count);
    if (status == OK && count)
        status = fail(ERR_ARGUMENT,
                      "%s is of a run with %s%s: use the same settings to resume, --resume none to start over, or another "
                      "--output%s%s%s%s",
                      dir, list.data, count > DIFFERENT_SHOWN ? "; and others" : "",
                      longer && !may ? "; to train longer, begin a run of its own with what this one learned: " : "",
                      longer && !may ? snap->job->full ? "--model " : "--init-adapter " : "",
                      longer && !may ? now->output_dir : "", longer && !may ? " --output ANOTHER" : "");
    else if (status == OK && before != snap->rows->steps)
        log_message(LOG_INFO, "%s is of a run of %lld step%s, which goes on to step %lld", dir, (long long)before, plural(before),
                    (long long)snap->rows->steps);
    buffer_free(&list);
    return status;
}

static bool is_setting(const char *key)
{
    bool known = !strcmp(key, LOSS_KEY);
    for (enum option o = 0; o < OPTIONS && !known; o++)
        known = options_decides(o) && !strcmp(key, options_name(o));
    for (int i = 0; i < DATA_KEYS && !known; i++)
        known = !strcmp(key, data_keys[i]);
    return known;
}

static enum status lacks(const char *dir, const char *where, const char *key, const char *needed)
{
    return fail(ERR_FORMAT,
                "%s/" CHECKPOINT_STATE
                ": %s\"%s\" is missing, or not %s: the file was damaged, or made by something else than hone: take "
                "another checkpoint, or start over (--resume none)",
                dir, where, key, needed);
}

/* All that fingerprint_add writes, in the types that it has there, and no setting that this hone does not know. */
static enum status check_whole(const json_t *tree, const json_t *chosen, const char *dir)
{
    static const char in_settings[] = "of \"settings\", ";
    if (!json_is_object(chosen))
        return lacks(dir, "", SETTINGS_KEY, "an object");
    for (const struct record_field *f = fields; f->key; f++)
        if (!json_is_string(json_object_get(tree, f->key)))
            return lacks(dir, "", f->key, "a text");
    if (!json_is_string(json_object_get(chosen, LOSS_KEY)))
        return lacks(dir, in_settings, LOSS_KEY, "a text");
    for (enum option o = 0; o < OPTIONS; o++)
        if (options_decides(o) && !json_is_string(json_object_get(chosen, options_name(o))))
            return lacks(dir, in_settings, options_name(o), "a text");
    for (int i = 0; i < DATA_KEYS; i++)
        if (!json_is_integer(json_object_get(chosen, data_keys[i])))
            return lacks(dir, in_settings, data_keys[i], "a whole number");
    for (void *at = json_object_iter((json_t *)chosen); at; at = json_object_iter_next((json_t *)chosen, at))
        if (!is_setting(json_object_iter_key(at)))
            return fail(ERR_FORMAT, "%s/" CHECKPOINT_STATE ": \"settings\" has \"%.100s\", which is not a setting of this hone",
                        dir, json_object_iter_key(at));
    return OK;
}

enum status fingerprint_check(struct snapshot *snap, const json_t *tree, const char *dir)
{
    struct fingerprint print;
    const json_t *chosen = json_object_get(tree, SETTINGS_KEY);
    TRY(check_whole(tree, chosen, dir));
    TRY(find_fingerprint(snap, &print)); /* another model first: its defaults may be others too */
    TRY(check_same(tree, dir, "base", print.base, "another base model: its weights are not those of --model"));
    TRY(compare_options(snap, tree, chosen, dir));
    char losses[LOSS_NAMES];
    const char *was_loss = json_string_value(json_object_get(chosen, LOSS_KEY)), *loss = loss_names(snap->job->losses, losses);
    if (strcmp(was_loss, loss) != 0)
        return differs(dir, LOSS_KEY, was_loss, loss);
    for (int i = 0; i < DATA_KEYS; i++) {
        const json_t *was = json_object_get(chosen, data_keys[i]);
        if (json_integer_value(was) != data_number(snap, i))
            return fail(
                ERR_ARGUMENT,
                "%s is of a run on other data (%s was %lld and is %lld): use the same data, tokenizer and chat template to "
                "resume, --resume none to start over, or another --output",
                dir, data_keys[i], (long long)json_integer_value(was), (long long)data_number(snap, i));
    }
    TRY(check_model(&print, tree, dir));
    TRY(check_rows(&print, tree, dir));
    return check_computes(&print, tree, dir);
}

/* Those that decide numbers and are given with a step are not among them, nor those that check_model sees to. */
static const enum option of_arrays[] = {
    OPTION_finetuning_type,           OPTION_train_norms, OPTION_optim, OPTION_lora_dropout, OPTION_load_in_4bit,
    OPTION_bnb_4bit_use_double_quant, OPTION_load_in_fp8,
};

enum status fingerprint_check_arrays(struct snapshot *snap, const json_t *tree, const char *dir)
{
    struct fingerprint print;
    struct buffer list = {0};
    const json_t *chosen = json_object_get(tree, SETTINGS_KEY);
    enum status status = OK;
    int count = 0;
    TRY(check_whole(tree, chosen, dir));
    TRY(find_fingerprint(snap, &print));
    TRY(check_same(tree, dir, "base", print.base, "another base model: its weights are not those of --model"));
    for (size_t i = 0; i < sizeof of_arrays / sizeof *of_arrays && status == OK; i++)
        status = compare_option(snap, of_arrays[i], chosen, &list, &count);
    if (status == OK && count)
        status = fail(ERR_ARGUMENT, "%s is of a trainer with %s%s: load it into one that was opened with the same settings", dir,
                      list.data, count > DIFFERENT_SHOWN ? "; and others" : "");
    buffer_free(&list);
    TRY(status);
    TRY(check_model(&print, tree, dir));
    return check_computes(&print, tree, dir);
}
