/* hone init: a first configuration. The model and the data are opened as a run opens them, plans are made until one fits, and
 * what was chosen is written as YAML with its reason above each line. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/utf8.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "data/data_summary.h"
#include "train/trainer.h"

enum { COLUMNS = 98, LENGTH_STEP = 64, LENGTH_MIN = 256, STEPS_WANTED = 100, EVAL_ROWS_MAX = 500 };

struct init {
    const struct options *asked;
    struct arena arena;
    struct options run; /* the run that is written, as options of hone plan */
    const char *model, *data, *output;
    const char *family;
    struct model_config config;
    int64_t rows, tokens, trained, half, most, longest, cut; /* of lengths: the median, the 95th percentile; rows that are cut */
    int64_t steps, eval_rows;
    bool own_validation, gguf;
    double rate;
    char rate_words[RATE_WORDS], kinds[128];
    json_t *plan; /* of the run */
    struct buffer yaml;
};

/* --- looking ------------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static enum status measure_lengths(struct init *in, const struct data *data)
{
    int64_t n = data->row_count;
    int32_t *lengths = memory_alloc(n * (int64_t)sizeof *lengths);
    if (!lengths)
        return ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        lengths[i] = data->rows[i].count;
    qsort(lengths, (size_t)n, sizeof *lengths, by_size);
    in->half = lengths[(n - 1) / 2];
    in->most = lengths[(n - 1) * 95 / 100];
    in->longest = data->summary.longest;
    in->cut = data->summary.long_rows;
    memory_free(lengths);
    return OK;
}

static void name_kinds(struct init *in, const struct data *data)
{
    in->kinds[0] = 0;
    for (int k = 0; k < ROW_KINDS; k++)
        if (data->summary.kinds[k]) {
            size_t used = strlen(in->kinds);
            snprintf(in->kinds + used, sizeof in->kinds - used, "%s%s", used ? ", " : "", row_kind_name((enum row_kind)k));
        }
}

/* Opens the run as far as a plan does, and keeps what is said about it. */
static enum status init_look(struct init *in)
{
    struct trainer t;
    TRY(trainer_plan(&t, &in->run, NULL));
    in->family = t.build.session.model.family->model_type;
    in->config = t.build.session.model.config;
    in->gguf = t.build.session.model.gguf;
    in->eval_rows = t.rows.eval_data.row_count;
    in->own_validation = in->eval_rows && in->run.val_set_size == 0;
    const struct data *held = in->own_validation ? NULL : &t.rows.eval_data; /* rows of the same files */
    in->rows = t.rows.data.row_count + (held ? held->row_count : 0);
    in->tokens = t.rows.data.tokens + (held ? held->tokens : 0);
    in->trained = t.rows.data.trained + (held ? held->trained : 0);
    in->steps = t.rows.steps;
    in->rate = t.job.options->learning_rate;
    snprintf(in->rate_words, sizeof in->rate_words, "%s", t.job.rate_words);
    name_kinds(in, &t.rows.data);
    enum status status = measure_lengths(in, &t.rows.data);
    trainer_close(&t);
    return status;
}

static enum status init_plan(struct init *in)
{
    json_decref(in->plan);
    in->plan = NULL;
    TRY(command_plan(&in->run, COMMAND_PLAN, &in->plan));
    return in->plan ? OK : fail(ERR_MEMORY, "out of memory while planning a run");
}

static int64_t planned(const struct init *in, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(in->plan, key));
}

static bool fits(const struct init *in)
{
    return json_is_true(json_object_get(in->plan, "fits")) && !json_is_true(json_object_get(in->plan, "reads_from_disk"));
}

/* --- choosing ----------------------------------------------------------------------------------------------------------- */

/* Batches of 16, and smaller ones or more epochs where a run would otherwise have too few steps to learn. */
static void choose_steps(struct init *in)
{
    struct options *v = &in->run;
    v->num_train_epochs = in->rows < 1000 ? 3 : in->rows < 5000 ? 2 : 1;
    v->per_device_train_batch_size = 16;
    while (v->per_device_train_batch_size > 4 &&
           v->num_train_epochs * (double)in->rows < STEPS_WANTED * (double)v->per_device_train_batch_size)
        v->per_device_train_batch_size /= 2;
    if (!in->own_validation && in->rows >= 40)
        v->val_set_size = in->rows <= 20 * EVAL_ROWS_MAX ? 0.05 : EVAL_ROWS_MAX;
}

/* LoRA, else QLoRA, else shorter rows, else layers and activations in host memory. */
static enum status choose_memory(struct init *in)
{
    struct options *v = &in->run;
    bool given = in->asked->source[OPTION_finetuning_type];
    const char *layers = v->resident_layers;
    enum choice_activation_offloading offloading = v->activation_offloading;
    v->resident_layers = "all";
    v->activation_offloading = offloading == CHOICE_activation_offloading_auto ? CHOICE_activation_offloading_off : offloading;
    TRY(init_plan(in));
    if (!fits(in) && !given && !in->gguf) {
        v->finetuning_type = CHOICE_finetuning_type_qlora;
        TRY(init_plan(in));
    }
    while (!fits(in) && v->max_length > LENGTH_MIN) {
        v->max_length = max(LENGTH_MIN, round_up(v->max_length / 2, LENGTH_STEP));
        TRY(init_plan(in));
    }
    v->resident_layers = layers;
    v->activation_offloading = offloading;
    if (!fits(in))
        TRY(init_plan(in));
    if (!json_is_true(json_object_get(in->plan, "fits")))
        return fail(
            ERR_MEMORY,
            "%s: %s with rows of %lld tokens still takes %.2f GB, and %.2f GB are free: it needs a smaller model or another "
            "machine",
            in->model, options_word(OPTION_finetuning_type, (int)v->finetuning_type), (long long)v->max_length,
            1e-9 * (double)planned(in, "peak_bytes"), 1e-9 * (double)planned(in, "free_bytes"));
    return OK;
}

static enum status init_choose(struct init *in)
{
    struct options *v = &in->run;
    v->excess_length = CHOICE_excess_length_truncate; /* whatever the limit, until it is known */
    TRY(init_look(in));
    log_mute(true); /* what is only tried says the same once more */
    v->max_length = min(round_up(max(in->longest, LENGTH_STEP), LENGTH_STEP), in->config.window);
    choose_steps(in);
    TRY(choose_memory(in));
    TRY(init_look(in)); /* as it will be */
    if (!in->cut)
        v->excess_length = CHOICE_excess_length_error;
    int64_t often = max(in->steps / 5, 10);
    v->eval_steps = v->save_steps = often < 100 ? often : 100;
    return OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

/* A comment, wrapped. */
__attribute__((format(printf, 2, 3))) static enum status comment(struct init *in, const char *format, ...)
{
    struct buffer text = {0};
    char line[2048];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    enum status status = buffer_format(&text, "\n");
    int column = COLUMNS + 1;
    for (const char *word = line; *word && status == OK;) {
        int n = (int)strcspn(word, " ");
        bool wrap = column + 1 + n > COLUMNS;
        status = buffer_format(&text, wrap ? "%s# %.*s" : "%s %.*s", wrap && text.size > 1 ? "\n" : "", n, word);
        column = wrap ? 2 + n : column + 1 + n;
        word += n + (word[n] == ' ');
    }
    if (status == OK)
        status = buffer_format(&in->yaml, "%s\n", text.data);
    buffer_free(&text);
    return status;
}

static enum status init_put_text(struct init *in, enum option option, const char *value)
{
    TRY(buffer_format(&in->yaml, "%s: ", options_name(option)));
    TRY(options_write_value(&in->yaml, option, value));
    return buffer_format(&in->yaml, "\n");
}

static enum status init_put(struct init *in, enum option option)
{
    TRY(buffer_format(&in->yaml, "%s: ", options_name(option)));
    TRY(options_get(&in->run, option, &in->yaml));
    return buffer_format(&in->yaml, "\n");
}

static const char *count_words(char text[static 32], double n)
{
    snprintf(text, 32, n < 1e9 ? "%.1f million" : "%.2f billion", n < 1e9 ? n / 1e6 : n / 1e9);
    return text;
}

static enum status write_subjects(struct init *in)
{
    char parameters[32];
    TRY(buffer_format(&in->yaml, "# Written by hone init. It trains with\n"));
    int64_t begin = in->yaml.size;
    TRY(buffer_format(&in->yaml, "#     hone train --config %s", in->output));
    utf8_clean_line(in->yaml.data + begin);
    TRY(buffer_format(&in->yaml, "\n# and every option, with its default, is listed by hone train --help.\n"));
    TRY(comment(in, "The model: %s, %s parameters, %lld layers of %lld channels, a window of %lld tokens.", in->family,
                count_words(parameters, (double)planned(in, "parameters")), (long long)in->config.layers,
                (long long)in->config.channels, (long long)in->config.window));
    TRY(init_put_text(in, OPTION_model_name_or_path, in->model));
    TRY(comment(in,
                "The data: %lld rows (%s), %lld tokens, %lld of them trained. Half of the rows have at most %lld tokens, 95%% at "
                "most %lld, the longest %lld. `hone inspect data` shows them as the model sees them.",
                (long long)in->rows, in->kinds, (long long)in->tokens, (long long)in->trained, (long long)in->half,
                (long long)in->most, (long long)in->longest));
    TRY(init_put_text(in, OPTION_dataset_path, in->data));
    return in->run.column_mapping ? init_put_text(in, OPTION_column_mapping, in->run.column_mapping) : OK;
}

static enum status write_validation(struct init *in)
{
    const struct options *v = &in->run;
    if (in->own_validation)
        return comment(in, "The directory's own file of validation data is used: %lld rows.", (long long)in->eval_rows);
    if (v->val_set_size == 0)
        return comment(in, "With so few rows none are held back for validation; eval_dataset_path names a file to validate on.");
    TRY(comment(in, "Held back to see whether the model learns or only remembers: %lld rows.", (long long)in->eval_rows));
    TRY(init_put(in, OPTION_val_set_size));
    TRY(init_put(in, OPTION_eval_steps));
    return init_put(in, OPTION_save_steps);
}

static enum status write_length(struct init *in)
{
    if (!in->cut)
        TRY(comment(in, "Room for the longest row. A longer one, in other data, is an error."));
    else
        TRY(comment(in,
                    "%s. Longer rows, %lld of %lld, lose their ends; excess_length: split would keep all of them, in windows.",
                    in->run.max_length == in->config.window ? "The model's window" : "What the memory has room for",
                    (long long)in->cut, (long long)in->rows));
    TRY(init_put(in, OPTION_max_length));
    return init_put(in, OPTION_excess_length);
}

static enum status write_method(struct init *in)
{
    const struct options *v = &in->run;
    const char *recompute = json_string_value(json_object_get(in->plan, "recompute"));
    const char *dtype = json_string_value(json_object_get(in->plan, "dtype"));
    const char *device = json_string_value(json_object_get(in->plan, "device"));
    TRY(comment(in,
                "Memory: %.2f GB of the %.2f GB that are free on %s. %s`recompute: auto` computes activations again where "
                "memory is short: here %s.",
                1e-9 * (double)planned(in, "peak_bytes"), 1e-9 * (double)planned(in, "free_bytes"), device,
                v->finetuning_type == CHOICE_finetuning_type_qlora && !in->asked->source[OPTION_finetuning_type]
                    ? "LoRA did not fit, so the weights below the adapter are stored in 4 bits. "
                    : "",
                !strcmp(recompute, "selective") ? "the cheap ones"
                : !strcmp(recompute, "full")    ? "all"
                                                : "none"));
    TRY(init_put(in, OPTION_finetuning_type));
    const json_t *other = json_object_get(in->plan, "other_dtype");
    if (other)
        TRY(comment(in, "Type: %s.", json_string_value(json_object_get(other, "says"))));
    TRY(init_put_text(in, OPTION_dtype, dtype));
    TRY(init_put(in, OPTION_recompute));
    if (v->finetuning_type == CHOICE_finetuning_type_full)
        return OK;
    TRY(comment(in, "The adapter: all linear layers, which learns more than only attention at the same size."));
    TRY(init_put(in, OPTION_lora_target_modules));
    TRY(init_put(in, OPTION_lora_r));
    return init_put(in, OPTION_lora_alpha);
}

static enum status write_steps(struct init *in)
{
    const struct options *v = &in->run;
    TRY(comment(in, "The learning rate: %s. More of it, or less, is the first thing to try.", in->rate_words));
    TRY(init_put(in, OPTION_learning_rate));
    TRY(comment(in, "%g epochs in %lld steps.%s", v->num_train_epochs, (long long)in->steps,
                v->per_device_train_batch_size < 16 ? " Batches are small, so that few rows make enough steps to learn." : ""));
    TRY(init_put(in, OPTION_num_train_epochs));
    return init_put(in, OPTION_per_device_train_batch_size);
}

/* The file's name without its ending, for what the run writes. */
static enum status write_output(struct init *in)
{
    const char *slash = strrchr(in->output, '/'), *name = slash ? slash + 1 : in->output, *dot = strrchr(name, '.');
    int64_t n = dot && dot > name ? dot - in->output : (int64_t)strlen(in->output);
    char *dir = arena_format(&in->arena, "%.*s-out", (int)n, in->output);
    if (!dir)
        return ERR_MEMORY;
    TRY(comment(in, "Where the adapter, the checkpoints and metrics.jsonl go."));
    return init_put_text(in, OPTION_output_dir, dir);
}

static enum status write_yaml(struct init *in)
{
    TRY(write_subjects(in));
    TRY(write_length(in));
    TRY(write_validation(in));
    TRY(write_method(in));
    TRY(write_steps(in));
    return write_output(in);
}

/* --- the report --------------------------------------------------------------------------------------------------------- */

static json_t *init_summary_json(const struct init *in)
{
    const struct options *v = &in->run;
    char parameters[32];
    return json_pack("[o, o, o, o, o]",
                     json_sprintf("model       %s, %s parameters, %lld layers of %lld channels", in->family,
                                  count_words(parameters, (double)planned(in, "parameters")), (long long)in->config.layers,
                                  (long long)in->config.channels),
                     json_sprintf("data        %lld rows (%s), %lld tokens; 95%% of the rows have at most %lld",
                                  (long long)in->rows, in->kinds, (long long)in->tokens, (long long)in->most),
                     json_sprintf("run         %s in %s on %s, %lld steps of %lld rows, learning rate %g",
                                  options_word(OPTION_finetuning_type, (int)v->finetuning_type),
                                  json_string_value(json_object_get(in->plan, "dtype")),
                                  json_string_value(json_object_get(in->plan, "device")), (long long)in->steps,
                                  (long long)v->per_device_train_batch_size, in->rate),
                     json_sprintf("memory      %.2f GB of %.2f GB free", 1e-9 * (double)planned(in, "peak_bytes"),
                                  1e-9 * (double)planned(in, "free_bytes")),
                     json_sprintf("%s %s, with the reasons", in->asked->dry_run ? "would write" : "wrote      ", in->output));
}

static json_t *report_json(const struct init *in)
{
    const struct options *v = &in->run;
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:O, s:o, s:s, s:b}", "output", json_lossy(in->output), "family",
                     in->family, "finetuning_type", options_word(OPTION_finetuning_type, (int)v->finetuning_type), "max_length",
                     (json_int_t)v->max_length, "per_device_train_batch_size", (json_int_t)v->per_device_train_batch_size,
                     "learning_rate", in->rate, "steps", (json_int_t)in->steps, "eval_rows", (json_int_t)in->eval_rows, "plan",
                     in->plan, "summary", init_summary_json(in), "yaml", in->yaml.data, "dry_run", (int)in->asked->dry_run);
}

static const char *output_of(const struct options *asked)
{
    return asked->output_dir ? asked->output_dir : "run.yaml";
}

static enum status init_prepare(struct init *in, enum user_command command)
{
    const struct options *asked = in->asked;
    struct options *v = &in->run;
    TRY(options_need(asked, command, OPTION_model_name_or_path));
    TRY(options_need(asked, command, OPTION_dataset_path));
    in->model = asked->model_name_or_path;
    in->data = asked->dataset_path;
    in->output = output_of(asked);
    if (!asked->dry_run && file_exists(in->output))
        return fail(ERR_ARGUMENT, "%s exists, and is not overwritten: name another file with --output, or remove it", in->output);
    v->model_name_or_path = asked->model_name_or_path;
    v->dataset_path = asked->dataset_path;
    v->column_mapping = asked->column_mapping;
    v->cache_dir = asked->cache_dir;
    v->device = asked->device;
    v->finetuning_type = asked->finetuning_type;
    v->learning_rate = NAN; /* auto */
    return named_model_find(v, COMMAND_PLAN, v);
}

enum status command_init(const struct options *options, enum user_command command, json_t **report)
{
    struct init in = {.asked = options};
    options_init(&in.run, &in.arena);
    enum status status = init_prepare(&in, command);
    if (status == OK)
        status = init_choose(&in);
    log_mute(false);
    if (status == OK)
        status = write_yaml(&in);
    json_t *tree = status == OK ? report_json(&in) : NULL;
    if (status == OK && !tree)
        status = fail(ERR_MEMORY, "out of memory while writing a report");
    if (status == OK)
        *report = tree;
    else
        json_decref(tree);
    json_decref(in.plan);
    buffer_free(&in.yaml);
    arena_free(&in.arena);
    return status;
}

enum status command_init_write(const struct options *options, const json_t *report)
{
    const char *yaml = json_string_value(json_object_get(report, "yaml"));
    return options->dry_run ? OK : file_create(output_of(options), yaml, (int64_t)strlen(yaml));
}
