/* Reading prompts. */
#include "job/samples.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "config/options.h"

enum { PROMPTS_MAX = 1000, FILE_BYTES_MAX = 1 << 20 };

static enum status add_prompt(struct samples *s, struct arena *arena, const char *text, const char *where)
{
    int64_t length = (int64_t)strlen(text);
    if (utf8_invalid(text, length) >= 0)
        return fail(ERR_FORMAT, "%s: the prompt is not valid UTF-8", where);
    if (s->count == PROMPTS_MAX)
        return fail(ERR_LIMIT, "%s: a run answers at most %d prompts", where, PROMPTS_MAX);
    s->prompt[s->count] = arena_text(arena, text, length);
    return s->prompt[s->count++] ? OK : ERR_MEMORY;
}

/* A line that begins with a brace is an object. */
static enum status samples_add_line(struct samples *s, struct arena *arena, const char *line, int64_t length, const char *where)
{
    json_t *tree = NULL;
    const char *prompt = NULL;
    if (*line != '{')
        return add_prompt(s, arena, line, where);
    enum status status = json_parse(&tree, line, length, where);
    if (status == OK)
        status = json_get_text(tree, "prompt", &prompt, where);
    if (status == OK)
        status = prompt ? add_prompt(s, arena, prompt, where)
                        : fail(ERR_FORMAT, "%s: a line is a prompt as it is, or an object {\"prompt\": \"...\"}", where);
    json_decref(tree);
    return status;
}

static enum status samples_add_file(struct samples *s, struct arena *arena, const char *path, struct buffer *file)
{
    int64_t number = 1, before = s->count;
    TRY(file_read(file, path, FILE_BYTES_MAX));
    for (char *line = file->data, *next; line && *line; line = next, number++) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        end = end ? end : next;
        while (end > line && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = 0;
        const char *where = arena_format(arena, "%s:%lld", path, (long long)number);
        if (!where)
            return ERR_MEMORY;
        if (end > line)
            TRY(samples_add_line(s, arena, line, end - line, where));
    }
    return s->count > before ? OK : fail(ERR_FORMAT, "%s: there is no prompt in it; it should have one a line", path);
}

enum status samples_read(struct samples *s, const struct options *o, struct arena *arena)
{
    struct buffer file = {0};
    bool one = o->sample_prompt && o->sample_prompt[0], more = o->sample_prompts && o->sample_prompts[0];
    *s = (struct samples){0};
    if (!one && !more)
        return OK;
    s->prompt = arena_array(arena, PROMPTS_MAX, sizeof *s->prompt);
    enum status status = s->prompt ? OK : ERR_MEMORY;
    if (status == OK && one)
        status = add_prompt(s, arena, o->sample_prompt, "--sample-prompt");
    if (status == OK && more)
        status = samples_add_file(s, arena, o->sample_prompts, &file);
    buffer_free(&file);
    return status;
}
