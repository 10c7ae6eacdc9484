/* The data sets of other tools as what --data takes: paths, joined by commas. Axolotl and TRL list them, LLaMA-Factory describes
 * them in a dataset_info.json. hone recognises rows by their keys, so a description is followed where it says the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/reader.h"
#include "config/foreign/state.h"

enum { INFO_BYTES_MAX = 1 << 20, ROW_BYTES_MAX = 1 << 16 };

/* --- lists --------------------------------------------------------------------------------------------------------------- */

static enum status check_type(struct foreign *f, const struct yaml_node *type)
{
    static const char known[] = "chat_template,completion,sharegpt,pygmalion";
    if (!type || type->kind == YAML_NULL)
        return OK;
    if (type->kind != YAML_SCALAR)
        return foreign_refuse(
            f, type, "datasets[].type",
            "write the rows as messages, or as instruction, input and output: they are recognised by their keys");
    if (foreign_in_words("alpaca", type->text))
        return foreign_say(f, "datasets[].type", type->text, "rows go through the model's chat template, not Alpaca's wording");
    if (foreign_in_words(known, type->text))
        return OK;
    return foreign_refuse(f, type, "datasets[].type", "hone has rows of chat_template, alpaca, completion and sharegpt");
}

static enum status foreign_data_add_path(struct foreign *f, struct foreign_list *paths, const char *path)
{
    return foreign_join(f, paths, path, (int64_t)strlen(path));
}

/* The beginning of a split: a percentage is a weight after the path, a number of rows is max_samples. */
static enum status take_split(struct foreign *f, const struct yaml_node *split, const char **path)
{
    static const char begin[] = "train[:";
    char *end = NULL;
    bool part = strncmp(split->text, begin, sizeof begin - 1) == 0;
    double n = part ? strtod(split->text + sizeof begin - 1, &end) : 0;
    if (split->kind == YAML_NULL || strcmp(split->text, "train") == 0)
        return OK;
    if (part && n > 0 && n <= 100 && strcmp(end, "%]") == 0) {
        TRY(foreign_say(f, "datasets[].split", split->text, "a seeded choice of as many rows, not the first"));
        *path = arena_format(f->arena, "%s:%.15g", *path, n / 100);
        return *path ? OK : ERR_MEMORY;
    }
    if (part && n >= 1 && floor(n) == n && strcmp(end, "]") == 0 && !foreign_find(f, "datasets")->first->next)
        return foreign_set_real(f, OPTION_max_samples, n, split, "datasets[].split");
    return foreign_refuse(f, split, "datasets[].split", "put the rows of that split into a file of their own");
}

enum status foreign_data_list(struct foreign *f, const char *key, enum option option)
{
    const struct yaml_node *list = foreign_find(f, key);
    struct foreign_list paths = {0};
    if (!list || f->given->source[option])
        return OK;
    if (list->kind != YAML_LIST)
        return foreign_refuse(f, list, key, "a list is needed, with a path for each");
    for (const struct yaml_node *item = list->first; item; item = item->next) {
        const struct yaml_node *files = yaml_member(item, "data_files"), *path = yaml_member(item, "path");
        const char *text = NULL;
        TRY(check_type(f, yaml_member(item, "type")));
        if (files && files->kind != YAML_NULL)
            TRY(foreign_joined(f, files, &text));
        else if (path && path->kind == YAML_SCALAR)
            text = path->text;
        if (!text || !*text) {
            TRY(foreign_refuse(f, item, key, "a path is needed in it, of a file or a directory, as in - path: a.jsonl"));
            continue;
        }
        if (option == OPTION_dataset_path && yaml_member(item, "split"))
            TRY(take_split(f, yaml_member(item, "split"), &text));
        TRY(foreign_data_add_path(f, &paths, text));
    }
    return paths.text ? foreign_set(f, option, paths.text, list, key) : OK;
}

/* --- dataset_info.json --------------------------------------------------------------------------------------------------- */

/* What the members of a description may be: hone recognises these names. */
static bool is_known(const char *what, const char *name)
{
    static const struct {
        const char *what, *names;
    } known[] = {
        {"prompt", "instruction,text"},
        {"query", "input"},
        {"response", "output"},
        {"history", "history"},
        {"messages", "messages,conversations"},
        {"system", "system"},
        {"tools", "tools"},
        {"role_tag", "from,role"},
        {"content_tag", "value,content"},
        {"user_tag", "human,user"},
        {"assistant_tag", "gpt,assistant"},
        {"observation_tag", "observation,tool"},
        {"function_tag", "function_call"},
        {"system_tag", "system"},
        {"formatting", "alpaca,sharegpt,openai"},
        {"split", "train"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].what, what) == 0)
            return foreign_in_words(known[i].names, name);
    return false;
}

static enum status refuse_set(struct foreign *f, const struct yaml_node *node, const char *name, const char *what)
{
    char why[FOREIGN_KEY_SIZE];
    snprintf(why, sizeof why, "%.60s in dataset_info.json: %.120s", name, what);
    return foreign_refuse(f, node, node->key, why);
}

/* Columns, or tags. */
static enum status check_names(struct foreign *f, const struct yaml_node *node, const char *name, const json_t *members)
{
    const char *what;
    json_t *value;
    json_object_foreach((json_t *)members, what, value)
    {
        char why[FOREIGN_KEY_SIZE];
        const char *text = json_string_value(value);
        if (json_is_null(value) || (text && is_known(what, text)))
            continue;
        snprintf(why, sizeof why, "%.40s is %.40s, which hone does not recognise: rename it in the rows", what,
                 text ? text : "not a name");
        TRY(refuse_set(f, node, name, why));
    }
    return OK;
}

static enum status take_set(struct foreign *f, const struct yaml_node *node, const char *dir, const char *name,
                            const json_t *info, struct foreign_list *paths)
{
    const json_t *set = json_object_get(info, name);
    const char *file = json_string_value(json_object_get(set, "file_name"));
    const char *formatting = json_string_value(json_object_get(set, "formatting"));
    if (!set)
        return refuse_set(f, node, name, "there is no such data set");
    if (!file)
        return refuse_set(f, node, name, "it has no file_name: download the data set, and give it one");
    if (formatting && !is_known("formatting", formatting))
        return refuse_set(f, node, name, "the formatting is none of alpaca, sharegpt and openai");
    if (json_is_true(json_object_get(set, "ranking")))
        return refuse_set(f, node, name, "it is for preferences (ranking); hone has supervised fine-tuning");
    if (json_object_get(set, "num_samples") && !json_is_null(json_object_get(set, "num_samples")))
        return refuse_set(f, node, name, "num_samples: weigh the file instead, a.jsonl:0.1 takes a tenth of its rows");
    TRY(check_names(f, node, name, json_object_get(set, "columns")));
    TRY(check_names(f, node, name, json_object_get(set, "tags")));
    const char *path = file_join(f->arena, dir, file);
    return path ? foreign_data_add_path(f, paths, path) : ERR_MEMORY;
}

static enum status take_sets(struct foreign *f, const struct yaml_node *node, const char *names, const char *dir,
                             const json_t *info, struct foreign_list *paths)
{
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
        const char *begin = at + strspn(at, " ");
        size_t n = strcspn(begin, ",");
        while (n && begin[n - 1] == ' ')
            n--;
        const char *name = arena_text(f->arena, begin, (int64_t)n);
        if (!name)
            return ERR_MEMORY;
        if (!json_object_get(info, name) && strpbrk(name, "./") && file_exists(name))
            TRY(foreign_data_add_path(f, paths, name));
        else if (*name)
            TRY(take_set(f, node, dir, name, info, paths));
    }
    return OK;
}

enum status foreign_data_info(struct foreign *f, const char *key, enum option option)
{
    const struct yaml_node *node = foreign_find(f, key);
    const char *dir = foreign_text(f, "dataset_dir", "data"), *names;
    struct foreign_list paths = {0};
    json_t *info = NULL;
    if (!node || f->given->source[option])
        return OK;
    TRY(foreign_joined(f, node, &names));
    if (!names)
        return foreign_refuse(f, node, key, "names are needed");
    const char *path = file_join(f->arena, dir, "dataset_info.json");
    if (!path)
        return ERR_MEMORY;
    enum status status = file_exists(path) ? json_parse_file(&info, path, INFO_BYTES_MAX) : OK;
    if (status != OK)
        return fail_at(status, "%s:%d (%s): ", f->path, node->line, key);
    if (!info)
        TRY(strpbrk(names, "./") ? OK : foreign_refuse(f, node, key, "dataset_dir has no dataset_info.json (data by default)"));
    status = info || strpbrk(names, "./") ? take_sets(f, node, names, dir, info, &paths) : OK;
    json_decref(info);
    if (status != OK || !paths.text)
        return status;
    return foreign_set(f, option, paths.text, node, key);
}

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

/* The first row, if the file has it in its first line and it is not too long. */
static enum status look_at_row(const char *path, char *bytes, enum foreign_completion *found)
{
    struct reader reader;
    int64_t got = 0;
    json_t *row = NULL;
    TRY(reader_open(&reader, path));
    enum status status = reader_read(&reader, bytes, ROW_BYTES_MAX, &got);
    reader_close(&reader);
    const char *end = status == OK && got > 0 ? memchr(bytes, '\n', (size_t)got) : NULL;
    int64_t length = end ? end - bytes : got;
    if (status == OK && length > 0)
        status = json_parse(&row, bytes, length, path);
    const json_t *prompt = json_object_get(row, "prompt"), *completion = json_object_get(row, "completion");
    if (prompt && completion)
        *found = json_is_string(prompt) ? COMPLETION_STRING : COMPLETION_LIST;
    json_decref(row);
    return status;
}

enum status foreign_find_completion(struct foreign *f, const char *paths, enum foreign_completion *found)
{
    *found = COMPLETION_NONE;
    const char *first = arena_text(f->arena, paths, (int64_t)strcspn(paths, ","));
    if (first && file_is_directory(first))
        first = file_join(f->arena, first, "train.jsonl");
    if (!first)
        return ERR_MEMORY;
    if (!file_exists(first))
        return OK;
    char *bytes = memory_alloc(ROW_BYTES_MAX);
    enum status status = bytes ? look_at_row(first, bytes, found) : ERR_MEMORY;
    memory_free(bytes);
    return status == ERR_MEMORY ? status : OK; /* a file that cannot be read so is the run's to judge */
}
