/* hone.h: the model that --model names, and pulling one from the Hugging Face hub. */
#include <string.h>

#include "api/handles.h"
#include "api/pulled.h"
#include "base/clock.h"
#include "base/file.h"
#include "hub/blob.h"
#include "hub/cache.h"
#include "hub/pull.h"

/* --- the model that is named -------------------------------------------------------------------------------------------- */

/* A directory of this name comes before a model of the hub. */
static enum status find_model(struct options *values)
{
    const char *name = values->model_name_or_path, *path, *cache;
    if (file_exists(name) || !hub_is_name(name))
        return OK;
    TRY(hub_find(values->arena, name, "main", &path));
    if (!path) {
        TRY(hub_cache(values->arena, &cache));
        return fail(ERR_IO,
                    "%s: no such directory, and no such model in the Hugging Face cache (%s): `hone pull %s` downloads it", name,
                    cache, name);
    }
    values->model_name_or_path = path;
    values->model_id = name;
    return OK;
}

/* The same for an adapter; one that is not there is told where it is opened. */
static enum status find_adapter(struct arena *arena, const char **name)
{
    const char *path = NULL;
    if (*name && !file_exists(*name))
        TRY(hub_find(arena, *name, "main", &path));
    *name = path ? path : *name;
    return OK;
}

/* A path into the cache says what it is as well as a name does. */
static enum status find_commit(struct options *values)
{
    TRY(hub_origin(values->arena, values->model_name_or_path, &values->hub_name, &values->hub_commit));
    return pulled_find(values);
}

enum status need_model(const struct hone_options *options, struct options *values)
{
    TRY(options_need(&options->values, options->command, OPTION_model_name_or_path));
    *values = options->values;
    TRY(hub_enter(values->arena, &values->model_name_or_path));
    TRY(find_adapter(values->arena, &values->adapter));
    TRY(find_adapter(values->arena, &values->init_adapter));
    TRY(find_model(values));
    if (options->command == COMMAND_TRAIN)
        TRY(find_commit(values));
    TRY(check_model(values->model_name_or_path, options->command));
    const char *const paths[] = {values->model_name_or_path, values->adapter, values->init_adapter};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i])
            TRY(blob_check_model(values->arena, paths[i]));
    return OK;
}

/* --- pulling ------------------------------------------------------------------------------------------------------------ */

struct watch {
    hone_pull_progress call;
    void *context;
};

static bool pass_on(void *context, const char *file, int64_t done, int64_t bytes)
{
    const struct watch *watch = context;
    return watch->call(watch->context, file, done, bytes) == 0;
}

static json_t *files_json(const struct hub_listing *listing)
{
    json_t *files = json_array();
    for (int64_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted)
            json_array_append_new(
                files, json_pack("{s:s, s:I, s:s}", "name", listing->files[i].name, "bytes", (json_int_t)listing->files[i].size,
                                 listing->files[i].kind == SHA_1 ? "git_sha1" : "sha256", listing->files[i].hash));
    return files;
}

static enum status pull(const struct options *values, struct watch *watch, struct arena *arena, char **json)
{
    struct pull_request request = {
        .name = values->model_name_or_path,
        .revision = values->revision,
        .include = values->include,
        .output = values->output_dir,
        .overwrite = values->overwrite_output_dir,
        .dry = values->dry_run,
        .progress = watch->call ? pass_on : NULL,
        .context = watch,
    };
    struct pull_result result;
    double start = clock_seconds();
    TRY(pull_model(&request, arena, &result));
    if (request.output && !request.dry)
        TRY(pulled_write(&request, &result, arena));
    return json_result(json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:b, s:f}", "model", request.name, "revision",
                                 request.revision, "commit", result.listing.commit, "path", result.path, "files",
                                 files_json(&result.listing), "bytes", (json_int_t)result.bytes, "downloaded_bytes",
                                 (json_int_t)result.downloaded_bytes, "missing_bytes", (json_int_t)result.missing_bytes,
                                 "dry_run", (int)request.dry, "seconds", clock_seconds() - start),
                       json);
}

hone_status hone_pull(const hone_options *options, hone_pull_progress progress, void *context, char **json)
{
    struct watch watch = {progress, context};
    struct arena arena = {0};
    GIVEN(json);
    *json = NULL;
    CHECK(handle_enter(options, HANDLE_OPTIONS, __func__));
    enum status status = OK;
    if (!options->values.model_name_or_path)
        status = fail(ERR_ARGUMENT, "hone pull needs the name of a model: hone pull ORG/NAME, as in HuggingFaceTB/"
                                    "SmolLM2-135M-Instruct");
    if (status == OK)
        status = pull(&options->values, &watch, &arena, json);
    arena_free(&arena);
    return options_leave(options, status);
}
