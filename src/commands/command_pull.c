/* hone pull: a model of the Hugging Face hub into its cache or a directory. */
#include "base/clock.h"
#include "commands/commands.h"
#include "commands/pulled.h"

static json_t *pull_files_json(const struct hub_listing *listing)
{
    json_t *files = json_array();
    for (int64_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted)
            json_array_append_new(
                files, json_pack("{s:s, s:I, s:s}", "name", listing->files[i].name, "bytes", (json_int_t)listing->files[i].size,
                                 listing->files[i].kind == SHA_1 ? "git_sha1" : "sha256", listing->files[i].hash));
    return files;
}

static enum status pull(const struct options *values, pull_progress *progress, void *context, struct arena *arena,
                        json_t **report)
{
    struct pull_request request = {
        .name = values->model_name_or_path,
        .revision = values->revision,
        .include = values->include,
        .output = values->output_dir,
        .overwrite = values->overwrite_output_dir,
        .dry = values->dry_run,
        .progress = progress,
        .context = context,
    };
    struct pull_result result;
    double start = clock_seconds();
    TRY(pull_model(&request, arena, &result));
    if (request.output && !request.dry)
        TRY(pulled_write(&request, &result, arena));
    *report = json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:b, s:f}", "model", request.name, "revision", request.revision,
                        "commit", result.listing.commit, "path", result.path, "files", pull_files_json(&result.listing), "bytes",
                        (json_int_t)result.bytes, "downloaded_bytes", (json_int_t)result.downloaded_bytes, "missing_bytes",
                        (json_int_t)result.missing_bytes, "dry_run", (int)request.dry, "seconds", clock_seconds() - start);
    return OK;
}

enum status command_pull(const struct options *options, pull_progress *progress, void *context, json_t **report)
{
    struct arena arena = {0};
    if (!options->model_name_or_path)
        return fail(ERR_ARGUMENT, "hone pull needs the name of a model: hone pull ORG/NAME, as in HuggingFaceTB/"
                                  "SmolLM2-135M-Instruct");
    enum status status = pull(options, progress, context, &arena, report);
    arena_free(&arena);
    return status;
}
