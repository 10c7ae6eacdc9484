/* Pre-tokenizers. Every kind becomes steps of four sorts; a step hands its pieces to the next one as it finds them, so that
 * words reach the sink without being stored. To add a kind, add a row to KINDS.
 *
 * ByteLevel also writes text in the byte alphabet. The model works on bytes, so this is done only where later steps would
 * see it, and undone at the end.
 */
#include "text/pretokenize.h"

#include <string.h>

#include "text/alphabet.h"
#include "text/utf8.h"

enum { STEPS_MOST = 64, NESTING_MOST = 8, MAPPED_GROWTH = 2 };

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define NUMERIC "\\p{N}"
#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"

enum sort {
    SPLIT,                              /* at the matches of a pattern */
    PREFIX,                             /* a space in front, unless there is one */
    MAP,                                /* bytes to characters of the byte alphabet */
    UNMAP,                              /* and back */
};

/* What happens to a match. */
enum behaviour { ISOLATED, REMOVED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS };

struct pretokenize_step {
    enum sort sort;
    enum behaviour behaviour;
    bool invert;                        /* what does not match counts as the match */
    struct regex *pattern;
};

/* One run: what all steps share. */
struct run {
    const struct pretokenizer *p;
    struct pretokenize_scratch *scratch;
    pretokenize_sink *sink;
    void *context;
};

static enum status run_step(const struct run *run, int64_t k, struct view view);

/* The pieces of one split, joined by its behaviour: at most one piece waits for what comes behind it. */
struct joiner {
    const struct run *run;
    int64_t next;                       /* the step that gets the pieces */
    enum behaviour behaviour;
    struct view view;
    int64_t from, to;                   /* the waiting piece */
    bool waiting, matched;              /* matched: the last piece was a match */
};

static enum status flush(struct joiner *j)
{
    if (!j->waiting)
        return OK;
    j->waiting = false;
    return run_step(j->run, j->next, view_slice(j->view, j->from, j->to));
}

static enum status join(struct joiner *j, int64_t from, int64_t to, bool match)
{
    bool joined = false;
    switch (j->behaviour) {
    case REMOVED:
        if (match)
            return OK;
        break;
    case WITH_PREVIOUS:
        joined = match && !j->matched;
        break;
    case WITH_NEXT:
        joined = !match && j->matched;
        break;
    case CONTIGUOUS:
        joined = match == j->matched;
        break;
    case ISOLATED:
        break;
    }
    j->matched = match;
    if (joined && j->waiting) {
        j->to = to;
        return OK;
    }
    TRY(flush(j));
    j->from = from;
    j->to = to;
    j->waiting = true;
    return OK;
}

static enum status run_split(const struct run *run, int64_t k, struct view view)
{
    const struct pretokenize_step *step = &run->p->steps[k];
    struct joiner j = {.run = run, .next = k + 1, .behaviour = step->behaviour, .view = view};
    int64_t done = 0, from = 0, last = -1;
    while (from <= view.length) {
        int64_t begin, end;
        TRY(regex_find(step->pattern, run->scratch->search, view.text, view.length, from, &begin, &end));
        if (begin < 0)
            break;
        if (begin == end && end == last) {      /* an empty match right behind a match does not count */
            uint32_t code;
            from += from < view.length ? utf8_decode(view.text + from, &code) : 1;
            continue;
        }
        if (begin > done)
            TRY(join(&j, done, begin, step->invert));
        TRY(join(&j, begin, end, !step->invert));
        done = from = last = end;
    }
    if (done < view.length)
        TRY(join(&j, done, view.length, step->invert));
    return flush(&j);
}

static enum status run_rewrite(const struct run *run, int64_t k, struct view view)
{
    if (!run->scratch->text && !(run->scratch->text = memory_alloc(run->p->count * (int64_t)sizeof *run->scratch->text)))
        return ERR_MEMORY;
    struct aligned *out = &run->scratch->text[k];
    out->length = 0;
    out->most = MAPPED_GROWTH * view.length + 1;
    int64_t begin, end;
    uint32_t code;
    switch (run->p->steps[k].sort) {
    case PREFIX:
        if (view.text[0] == ' ')
            return run_step(run, k + 1, view);
        view_origin(&view, 0, utf8_decode(view.text, &code), &begin, &end);
        TRY(aligned_append(out, " ", 1, begin, end));
        TRY(aligned_copy(out, &view, 0, view.length));
        break;
    case MAP:
        for (int64_t i = 0; i < view.length; i++) {
            char utf8[4];
            view_origin(&view, i, i + 1, &begin, &end);
            TRY(aligned_append(out, utf8, alphabet_char((uint8_t)view.text[i], utf8), begin, end));
        }
        break;
    default:
        for (int64_t i = 0, n; i < view.length; i += n) {
            n = utf8_decode(view.text + i, &code);
            char byte = (char)alphabet_byte(code);
            view_origin(&view, i, i + n, &begin, &end);
            TRY(aligned_append(out, &byte, 1, begin, end));
        }
    }
    return run_step(run, k + 1, aligned_view(out));
}

static enum status run_step(const struct run *run, int64_t k, struct view view)
{
    if (!view.length)
        return OK;
    if (k == run->p->count)
        return run->sink(run->context, view);
    return run->p->steps[k].sort == SPLIT ? run_split(run, k, view) : run_rewrite(run, k, view);
}

enum status pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenize_scratch *scratch, struct view text,
                             pretokenize_sink *sink, void *context)
{
    const struct run run = {.p = pretokenizer, .scratch = scratch, .sink = sink, .context = context};
    return run_step(&run, 0, text);
}

void pretokenize_scratch_free(const struct pretokenizer *pretokenizer, struct pretokenize_scratch *scratch)
{
    for (int64_t i = 0; scratch->text && i < pretokenizer->count; i++)
        aligned_free(&scratch->text[i]);
    memory_free(scratch->text);
}

static enum status add(struct pretokenizer *p, enum sort sort, struct pretokenize_step **step, const char *where)
{
    if (p->count == STEPS_MOST)
        return fail(ERR_LIMIT, "%s: more than %d steps", where, STEPS_MOST);
    *step = &p->steps[p->count++];
    (*step)->sort = sort;
    return OK;
}

static enum status add_pattern(struct pretokenizer *p, const char *pattern, enum behaviour behaviour, const char *where)
{
    struct pretokenize_step *step = NULL;
    TRY(add(p, SPLIT, &step, where));
    step->behaviour = behaviour;
    return regex_open(&step->pattern, pattern, (int64_t)strlen(pattern), where);
}

static enum status read_behaviour(const json_t *json, enum behaviour *behaviour, const char *where)
{
    static const char *const NAMES[] = {
        [ISOLATED] = "Isolated",
        [REMOVED] = "Removed",
        [WITH_PREVIOUS] = "MergedWithPrevious",
        [WITH_NEXT] = "MergedWithNext",
        [CONTIGUOUS] = "Contiguous",
    };
    const char *name = "Isolated";
    TRY(json_get_text(json, "behavior", &name, where));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *behaviour = (enum behaviour)i;
            return OK;
        }
    return fail(ERR_FORMAT, "%s: a split cannot behave as \"%s\"", where, name);
}

static enum status open_byte_level(struct pretokenizer *p, const json_t *json, const char *where)
{
    for (int64_t i = 0; i < p->count; i++)
        if (p->steps[i].sort == MAP)
            return fail(ERR_UNSUPPORTED, "%s: two ByteLevel steps are not supported", where);
    bool prefix = true, regex = true;   /* trim_offsets concerns the post-processor */
    TRY(json_get_bool(json, "add_prefix_space", &prefix, where));
    TRY(json_get_bool(json, "use_regex", &regex, where));
    struct pretokenize_step *step = NULL;
    if (prefix)
        TRY(add(p, PREFIX, &step, where));
    if (regex)
        TRY(add_pattern(p, GPT2, ISOLATED, where));
    return add(p, MAP, &step, where);
}

static enum status open_split(struct pretokenizer *p, const json_t *json, const char *where)
{
    struct pretokenize_step *step = NULL;
    TRY(add(p, SPLIT, &step, where));
    TRY(read_behaviour(json, &step->behaviour, where));
    TRY(json_get_bool(json, "invert", &step->invert, where));
    return regex_open_json(&step->pattern, json_object_get(json, "pattern"), where);
}

static enum status open_digits(struct pretokenizer *p, const json_t *json, const char *where)
{
    bool individual = false;
    TRY(json_get_bool(json, "individual_digits", &individual, where));
    return add_pattern(p, NUMERIC, individual ? ISOLATED : CONTIGUOUS, where);
}

static enum status open_punctuation(struct pretokenizer *p, const json_t *json, const char *where)
{
    enum behaviour behaviour;
    TRY(read_behaviour(json, &behaviour, where));
    return add_pattern(p, PUNCTUATION, behaviour, where);
}

static const struct {
    const char *name;
    enum status (*open)(struct pretokenizer *p, const json_t *json, const char *where);
} KINDS[] = {
    {"ByteLevel", open_byte_level},
    {"Split", open_split},
    {"Digits", open_digits},
    {"Punctuation", open_punctuation},
};

static enum status open_steps(struct pretokenizer *p, const json_t *json, int nesting, const char *where)
{
    const char *type = "";
    TRY(json_get_text(json, "type", &type, where));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "pretokenizers"), *item;
        size_t i;
        if (nesting >= NESTING_MOST || !json_is_array(list))
            return fail(ERR_FORMAT, "%s: a Sequence without a list, or nested too deep", where);
        json_array_foreach(list, i, item)
            TRY(open_steps(p, item, nesting + 1, where));
        return OK;
    }
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(type, KINDS[i].name) == 0)
            return KINDS[i].open(p, json, where);
    return fail(ERR_UNSUPPORTED, "%s: a pre-tokenizer of type \"%s\" is not supported", where, type);
}

enum status pretokenizer_open(struct pretokenizer *p, const json_t *json, const char *where)
{
    *p = (struct pretokenizer){0};
    if (!json || json_is_null(json))
        return fail(ERR_UNSUPPORTED, "%s: a tokenizer without one is not supported (only byte-level ones are)", where);
    if (!(p->steps = memory_alloc(STEPS_MOST * (int64_t)sizeof *p->steps)))
        return ERR_MEMORY;
    TRY(open_steps(p, json, 0, where));
    for (int64_t i = 0; i < p->count; i++) {
        if (p->steps[i].sort != MAP)
            continue;
        if (i == p->count - 1) {        /* nothing sees the characters: words stay bytes */
            p->count--;
            return OK;
        }
        struct pretokenize_step *step = NULL;
        return add(p, UNMAP, &step, where);
    }
    return fail(ERR_UNSUPPORTED, "%s: without a ByteLevel step it is not supported", where);
}

void pretokenizer_close(struct pretokenizer *p)
{
    for (int64_t i = 0; i < p->count; i++)
        regex_close(p->steps[i].pattern);
    memory_free(p->steps);
    *p = (struct pretokenizer){0};
}
