/* hone verify: whether a folder is what its provenance.json says, what it was made from, and who signed it. */
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/minisign.h"
#include "base/path_hint.h"
#include "base/utf8.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "format/provenance.h"
#include "state/identity.h"
#include "state/output.h"

struct folder {
    const struct options *options;
    enum user_command command;
    struct arena arena;
    const char *dir;
    struct buffer text; /* of provenance.json */
    json_t *record;     /* what it says */
    json_t *report, *problems;
    bool keyed; /* a key was given, and every digest must be one that cannot be forged */
};

/* Each is a sentence; they do not end the verification. A file may be called anything: the name stays on its line. */
static enum status add_problem(struct folder *v)
{
    char *text = arena_text(&v->arena, status_message(), (int64_t)strlen(status_message()));
    if (!text)
        return ERR_MEMORY;
    utf8_clean(text);
    for (char *at = text; (at = strpbrk(at, "\n\t"));)
        *at = '?';
    return json_array_append_new(v->problems, json_string(text)) == 0
               ? OK
               : fail(ERR_MEMORY, "out of memory: the report on %s", v->dir);
}

/* What is wrong with the folder is a part of the report; what is wrong with this machine is an error. */
static enum status verify_judge(struct folder *v, enum status status)
{
    return status == ERR_FORMAT || status == ERR_IO || status == ERR_LIMIT ? add_problem(v) : status;
}

/* --- the signature ---------------------------------------------------------------------------------------------------------- */

static enum status verify_check_signature(struct folder *v, const char *path, const struct buffer *text)
{
    struct minisign_signature s;
    struct minisign_public key;
    char id[MINISIGN_ID_TEXT];
    const char *given = v->options->verify_key;
    TRY(minisign_parse(&s, text->data, text->size, path));
    minisign_id(s.id, id);
    const char *comment = arena_text(&v->arena, s.comment, s.comment_size);
    if (!comment)
        return ERR_MEMORY;
    if (given) {
        TRY(minisign_public_read(&key, given));
        TRY(minisign_check(&key, &s, v->text.data, v->text.size, path));
    }
    json_object_set_new(v->report, "signature",
                        json_pack("{s:s, s:o, s:b}", "key", id, "comment", json_lossy(comment), "checked", given != NULL));
    return OK;
}

static enum status look_at_signature(struct folder *v)
{
    struct buffer text = {0};
    const char *path = file_join(&v->arena, v->dir, PROVENANCE_SIGNATURE);
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return v->keyed ? fail(ERR_FORMAT, "%s: is missing: this is not signed", path) : OK;
    enum status status = file_read(&text, path, MINISIGN_BYTES_MAX);
    if (status == OK)
        status = verify_check_signature(v, path, &text);
    buffer_free(&text);
    return status;
}

/* --- its own files ---------------------------------------------------------------------------------------------------------- */

/* What has no digest in the record has one in the list of checksums, which is compared as a whole. */
static enum status check_covered(struct folder *v, const json_t *entry, const char *path, const char *name)
{
    struct buffer list = {0};
    enum provenance_by by;
    provenance_digest(entry, &by);
    if (by != PROVENANCE_SIZE)
        return OK;
    enum status status = checksums_there(v->dir) ? checksums_read(&list, v->dir) : OK;
    if (status == OK && !checksums_line(&list, name))
        status = fail(ERR_FORMAT, "%s: nothing has a digest of it", path);
    buffer_free(&list);
    return status;
}

static enum status compare_files(struct folder *v, json_t *list)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(v->record, "files"), i, entry)
    {
        const char *state, *name = json_string_value(json_object_get(entry, "name")), *path = file_join(&v->arena, v->dir, name);
        if (!path)
            return ERR_MEMORY;
        TRY(verify_judge(v, provenance_compare(path, entry, v->keyed, &state)));
        TRY(verify_judge(v, check_covered(v, entry, path, name)));
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "state", state));
    }
    return OK;
}

/* What a run keeps next to its result, and no program takes for a part of a model. */
static bool is_of_run(const struct folder *v, const char *name, bool folder)
{
    static const char *const files[] = {RUN_FILE, "run.lock", "report.html", "README.md", NULL};
    if (folder)
        return !strncmp(name, "checkpoint-", 11) || !strncmp(name, "earlier-", 8) || !strcmp(name, "tensorboard");
    bool known = provenance_is_file(name) || (checksums_is_list(name) && checksums_there(v->dir));
    for (const char *const *of = files; *of; of++)
        known |= !strcmp(name, *of);
    for (const char *const *of = output_metrics; *of; of++)
        known |= !strcmp(name, *of);
    return known;
}

/* A file that came later may be taken for a part of the model: another template, more weights, code. */
static enum status find_others(struct folder *v, json_t *list)
{
    const char **names;
    int64_t count;
    TRY(directory_list(&v->arena, v->dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        const char *path = file_join(&v->arena, v->dir, names[i]);
        if (!path)
            return ERR_MEMORY;
        if (provenance_lists(v->record, names[i]) || is_of_run(v, names[i], file_is_directory(path)))
            continue;
        fail(ERR_FORMAT, "%s: was added later: provenance.json does not list it; remove it if you did not put it there", path);
        TRY(add_problem(v));
        json_array_append_new(list, json_pack("{s:o, s:s}", "name", json_lossy(names[i]), "state", "not listed"));
    }
    return OK;
}

static enum status look_at_files(struct folder *v)
{
    json_t *list = json_array();
    json_object_set_new(v->report, "files", list);
    TRY(compare_files(v, list));
    TRY(find_others(v, list));
    return checksums_there(v->dir) ? verify_judge(v, checksums_check(v->dir)) : OK;
}

/* --- what it was made from -------------------------------------------------------------------------------------------------- */

static const char *verify_text_of(const json_t *part, const char *key)
{
    const char *text = json_string_value(json_object_get(part, key));
    return text ? text : "";
}

/* The numbers that are computed with, in whatever files they lie. */
static enum status compare_weights(const char *path, const json_t *part)
{
    struct model model;
    char base[HASH_TEXT], config[HASH_TEXT];
    TRY(model_open(&model, path, NULL, true));
    enum status status = identity_of_base(&model, base, config);
    model_close(&model);
    TRY(status);
    return !strcmp(base, verify_text_of(part, "weights_xxh128")) && !strcmp(config, verify_text_of(part, "config_xxh128"))
               ? OK
               : fail(ERR_FORMAT, "%s: is not the model that it was made from: its weights or its configuration are others",
                      path);
}

static enum status compare_base(struct folder *v, const struct options *values, const json_t *part)
{
    const char *path = values->model_name_or_path, *slash = strrchr(path, '/'), *dir = path;
    enum provenance_by by;
    bool all = true;
    size_t i;
    const json_t *entry;
    if (!file_is_directory(path))
        dir = slash ? arena_text(&v->arena, path, slash - path + 1) : ".";
    json_array_foreach(json_object_get(part, "files"), i, entry)
    {
        const char *state, *file = dir ? file_join(&v->arena, dir, json_string_value(json_object_get(entry, "name"))) : NULL;
        if (!file)
            return ERR_MEMORY;
        all &= provenance_digest(entry, &by) != NULL;
        TRY(provenance_compare(file, entry, false, &state));
    }
    return all && i ? OK : compare_weights(path, part);
}

static enum status look_at_model(struct folder *v)
{
    struct options values;
    const json_t *part = json_object_get(json_object_get(v->record, "made_from"), "model");
    if (!v->options->model_name_or_path)
        return OK;
    TRY(named_model_find(v->options, v->command, &values));
    enum status status = compare_base(v, &values, part);
    json_object_set_new(v->report, "model", json_string(status == OK ? "the same" : "another"));
    return verify_judge(v, status);
}

static enum status compare_source(struct folder *v, const struct source *source, const json_t *files)
{
    const char *paths = v->options->dataset_path;
    enum provenance_by by;
    size_t i;
    const json_t *entry;
    if ((int64_t)json_array_size(files) != source_files(source))
        return fail(ERR_FORMAT, "%s: %lld files, and it was made from %zu", paths, (long long)source_files(source),
                    json_array_size(files));
    json_array_foreach(files, i, entry)
    {
        const char *state, *path = source_path(source, (int64_t)i);
        if (!provenance_digest(entry, &by))
            return fail(ERR_FORMAT, "%s: the record has no digest of the data, so that nothing can be said", path);
        TRY(provenance_compare(path, entry, false, &state));
    }
    return OK;
}

static enum status look_at_data(struct folder *v)
{
    struct source *source;
    const json_t *part = json_object_get(json_object_get(v->record, "made_from"), "data");
    if (!v->options->dataset_path)
        return OK;
    TRY(source_open(&source, v->options->dataset_path, "train", NULL));
    enum status status = compare_source(v, source, json_object_get(part, "files"));
    source_close(source);
    json_object_set_new(v->report, "data", json_string(status == OK ? "the same" : "other data"));
    return verify_judge(v, status);
}

/* --- all of it -------------------------------------------------------------------------------------------------------------- */

static enum status open_record(struct folder *v)
{
    const char *path = file_join(&v->arena, v->dir, PROVENANCE_FILE);
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(v->dir))
        return fail(ERR_IO, "%s: %s", v->dir, path_hint(&v->arena, v->dir, "directory"));
    if (!file_exists(path))
        return fail(ERR_FORMAT,
                    "%s: is missing: only hone train and hone pull write one; hone verify takes the folder of a result, of a "
                    "checkpoint or of a pulled model",
                    path);
    TRY(file_read(&v->text, path, PROVENANCE_BYTES_MAX));
    return provenance_parse(&v->record, v->text.data, v->text.size, path);
}

static enum status verify_look(struct folder *v)
{
    static const char *const taken[] = {"hone", "made_by", "step", "made_from", NULL};
    TRY(open_record(v));
    json_object_set_new(v->report, "path", json_lossy(v->dir));
    for (const char *const *key = taken; *key; key++)
        if (json_object_get(v->record, *key))
            json_object_set(v->report, *key, json_object_get(v->record, *key));
    TRY(verify_judge(v, look_at_signature(v)));
    TRY(look_at_files(v));
    TRY(look_at_model(v));
    return look_at_data(v);
}

/* The first problem is the message; the report has them all. */
static enum status conclude(struct folder *v, json_t **report)
{
    size_t count = json_array_size(v->problems);
    const char *first = json_string_value(json_array_get(v->problems, 0));
    json_object_set(v->report, "problems", v->problems);
    json_object_set_new(v->report, "verified", json_boolean(count == 0));
    *report = json_incref(v->report);
    return count ? fail(ERR_FORMAT, "%s%s", first ? first : v->dir, count > 1 ? "; and other problems" : "") : OK;
}

enum status command_verify(const struct options *options, enum user_command command, json_t **report)
{
    struct folder v = {.options = options, .command = command, .dir = options->run_dir, .keyed = options->verify_key};
    struct minisign_public key;
    if (!v.dir)
        return fail(ERR_ARGUMENT, "hone verify needs a directory: hone verify DIR");
    if (v.keyed && !*options->verify_key)
        return fail(ERR_ARGUMENT, "--verify-key is empty: give the public key, or its file");
    if (v.keyed)
        TRY(minisign_public_read(&key, options->verify_key)); /* a wrong path is no forgery */
    v.report = json_object();
    v.problems = json_array();
    enum status status = v.report && v.problems ? verify_look(&v) : fail(ERR_MEMORY, "out of memory: the report on %s", v.dir);
    if (status == OK)
        status = conclude(&v, report);
    json_decref(v.report);
    json_decref(v.problems);
    json_decref(v.record);
    buffer_free(&v.text);
    arena_free(&v.arena);
    return status;
}
