/* Comparing with rank 0. */
#include "state/ranks_agree.h"

#include <stdio.h>
#include <string.h>

#include "job/build.h"
#include "state/identity.h"

enum { SHOWN = 64 }; /* characters of a value, for the message */

/* A value as it is sent: what of it is too long for the message is in the digest. */
struct sent_value {
    struct digest digest;
    char text[SHOWN];
};

struct sent_options {
    char version[SHOWN];
    struct sent_value option[OPTIONS];
};

static enum status ranks_agree_fill(struct sent_options *sent, const struct options *options)
{
    struct buffer text = {0};
    enum status status = OK;
    snprintf(sent->version, sizeof sent->version, "%s", HONE_VERSION);
    for (enum option o = 0; o < OPTIONS && status == OK; o++) {
        if (!options_together(o))
            continue;
        text.size = 0;
        status = options_get(options, o, &text);
        if (status == OK)
            status = buffer_append(&text, "", 1);
        if (status != OK)
            break;
        sent->option[o].digest = hash_of(text.data, text.size);
        snprintf(sent->option[o].text, SHOWN, "%s", *text.data ? text.data : "(none)");
    }
    buffer_free(&text);
    return status;
}

static enum status ranks_agree_compare(const struct sent_options *mine, const struct sent_options *first)
{
    if (strcmp(mine->version, first->version) != 0)
        return fail(ERR_ARGUMENT, "this is hone %s, and rank 0 is hone %s: all ranks of a run need the same", mine->version,
                    first->version);
    for (enum option o = 0; o < OPTIONS; o++)
        if (!digest_equal(mine->option[o].digest, first->option[o].digest))
            return fail(ERR_ARGUMENT, "%s is %s here and %s on rank 0: give all ranks of a run the same options", options_name(o),
                        mine->option[o].text, first->option[o].text);
    return OK;
}

static enum status tell_options(struct group *group, const struct options *options, struct sent_options *mine,
                                struct sent_options *first)
{
    TRY(group_agree(group, ranks_agree_fill(mine, options)));
    *first = *mine;
    TRY(group_tell(group, first, (int64_t)sizeof *first));
    GROUP_TEXT(first->version);
    for (enum option o = 0; o < OPTIONS; o++)
        GROUP_TEXT(first->option[o].text);
    return group_agree(group, ranks_agree_compare(mine, first));
}

enum status ranks_agree_options(struct group *group, const struct options *options)
{
    if (!group)
        return OK;
    struct sent_options *sent = memory_alloc(2 * (int64_t)sizeof *sent);
    enum status status = sent ? tell_options(group, options, sent, sent + 1) : ERR_MEMORY;
    memory_free(sent);
    return status;
}

static enum status compare_numbers(const struct rank_number *mine, const double *first, int count)
{
    for (int i = 0; i < count; i++)
        if (mine[i].value != first[i])
            return fail(ERR_ARGUMENT, "%s is %.12g here and %.12g on rank 0: give all ranks the same", mine[i].name,
                        mine[i].value, first[i]);
    return OK;
}

enum status ranks_agree_numbers(struct group *group, const struct rank_number *numbers, int count)
{
    double first[RANK_NUMBERS] = {0};
    if (!group)
        return OK;
    for (int i = 0; i < count; i++)
        first[i] = numbers[i].value;
    TRY(group_tell(group, first, (int64_t)sizeof first));
    return group_agree(group, compare_numbers(numbers, first, count));
}

enum status ranks_agree_material(const struct build *b, const struct rows *rows)
{
    struct {
        char base[HASH_TEXT], data[HASH_TEXT], eval_data[HASH_TEXT], dtype[SHOWN];
        int64_t samples;
    } mine = {.samples = b->job->samples.count}, first;
    enum status status = OK;
    if (!b->group)
        return OK;
    identity_sketch(&b->session.model, mine.base);
    identity_of_data(&rows->data, mine.data);
    identity_of_data(&rows->eval_data, mine.eval_data);
    snprintf(mine.dtype, sizeof mine.dtype, "%s", session_dtype(&b->session));
    first = mine;
    TRY(group_tell(b->group, &first, (int64_t)sizeof first));
    GROUP_TEXT(first.base);
    GROUP_TEXT(first.data);
    GROUP_TEXT(first.eval_data);
    GROUP_TEXT(first.dtype);
    if (strcmp(mine.base, first.base) != 0)
        status = fail(ERR_ARGUMENT, "%s is not the model, or the adapter to start from, that rank 0 has: its weights are others",
                      b->job->options->model_name_or_path);
    else if (strcmp(mine.data, first.data) != 0)
        status = fail(ERR_ARGUMENT, "%s has not the rows that rank 0 has, or in another order", b->job->options->dataset_path);
    else if (strcmp(mine.eval_data, first.eval_data) != 0)
        status = fail(ERR_ARGUMENT, "the validation data has not the rows that rank 0 has, or in another order");
    else if (strcmp(mine.dtype, first.dtype) != 0)
        status = fail(ERR_ARGUMENT, "this rank computes in %s and rank 0 in %s: give --dtype", mine.dtype, first.dtype);
    else if (mine.samples != first.samples)
        status = fail(ERR_ARGUMENT, "--sample-prompts has not as many prompts as on rank 0");
    return group_agree(b->group, status);
}
