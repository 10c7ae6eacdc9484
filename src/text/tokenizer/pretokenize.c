/* Pre-tokenizers. Every kind becomes steps of five sorts; a step passes its pieces to the next one as it finds them, so that
 * words reach the sink without being stored. To add a kind, add a row to KINDS.
 *
 * ByteLevel also writes text in the byte alphabet. The model works on bytes, so this is done only where later steps would
 * see it, and undone at the end.
 */
#include "text/tokenizer/pretokenize.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/alphabet.h"
#include "text/tokenizer/scanner.h"
#include "text/tokenizer/sequence.h"

enum { STEPS_MAX = 64, REPLACEMENT_MAX = 4 };

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SPACE "\\s"
#define WORDS "[" WORD "]+|[^\\s" WORD "]+"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" /* Rust's \w, not Oniguruma's */

enum sort {
    SPLIT,  /* at the matches of a pattern */
    PREFIX, /* a space before the text, unless there is one */
    SPACES, /* another character for every space, and perhaps one before the text */
    MAP,    /* bytes to characters of the byte alphabet */
    UNMAP,  /* and back */
};

/* Where SPACES puts its character if it is missing. */
enum scheme { NEVER, FIRST, ALWAYS };

/* What happens to a match. */
enum behaviour { ISOLATED, REMOVED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS };

struct pretokenize_step {
    enum sort sort;
    enum behaviour behaviour;
    bool invert;                   /* what does not match counts as the match */
    const struct scanner *scanner; /* finds what the pattern would; NULL: the pattern has none */
    struct regex *pattern;
    char text[REPLACEMENT_MAX]; /* what SPACES puts for a space */
    int64_t length;
    enum scheme scheme;
};

/* One run: what all steps share. */
struct run {
    const struct pretokenizer *p;
    struct pretokenize_scratch *scratch;
    pretokenize_sink *sink;
    void *context;
    int64_t first; /* where the very first byte came from; -1: the text is not at the beginning */
};

static enum status run_step(const struct run *run, int64_t k, struct view view);

/* The pieces of one split, joined by its behaviour: at most one piece waits for what comes after it. */
struct joiner {
    const struct run *run;
    int64_t next; /* the step that gets the pieces */
    enum behaviour behaviour;
    struct view view;
    int64_t from, to;      /* the waiting piece */
    bool waiting, matched; /* matched: the last piece was a match */
};

static enum status pretokenize_flush(struct joiner *j)
{
    if (!j->waiting)
        return OK;
    j->waiting = false;
    return run_step(j->run, j->next, view_slice(j->view, j->from, j->to));
}

static enum status pretokenize_join(struct joiner *j, int64_t from, int64_t to, bool match)
{
    bool joined = false;
    switch (j->behaviour) {
    case REMOVED:
        if (match)
            return OK;
        break;
    case WITH_PREVIOUS: joined = match && !j->matched; break;
    case WITH_NEXT: joined = !match && j->matched; break;
    case CONTIGUOUS: joined = match == j->matched; break;
    case ISOLATED: break;
    }
    j->matched = match;
    if (joined && j->waiting) {
        j->to = to;
        return OK;
    }
    TRY(pretokenize_flush(j));
    j->from = from;
    j->to = to;
    j->waiting = true;
    return OK;
}

static enum status pretokenize_find(const struct run *run, const struct pretokenize_step *step, const struct view *view,
                                    int64_t from, int64_t *begin, int64_t *end)
{
    if (!step->scanner)
        return regex_find(step->pattern, run->scratch->search, view->text, view->length, from, begin, end);
    *begin = -1;
    if (from < view->length && (*end = scanner_next(step->scanner, view->text, view->length, from, begin)) < 0)
        *begin = -1;
    return OK;
}

static enum status run_split(const struct run *run, int64_t k, struct view view)
{
    const struct pretokenize_step *step = &run->p->steps[k];
    int64_t done = 0, from = 0, last = -1;
    if (step->scanner && scanner_covers(step->scanner) && step->behaviour == ISOLATED) { /* matches without gaps */
        for (int64_t begin; from < view.length; from = done) {
            done = scanner_next(step->scanner, view.text, view.length, from, &begin);
            TRY(run_step(run, k + 1, view_slice(view, from, done)));
        }
        return OK;
    }
    struct joiner j = {.run = run, .next = k + 1, .behaviour = step->behaviour, .view = view};
    while (from <= view.length) {
        int64_t begin, end;
        TRY(pretokenize_find(run, step, &view, from, &begin, &end));
        if (begin < 0)
            break;
        if (begin == end && end == last) { /* an empty match right after a match does not count */
            uint32_t code;
            from += from < view.length ? utf8_decode(view.text + from, &code) : 1;
            continue;
        }
        if (begin > done)
            TRY(pretokenize_join(&j, done, begin, step->invert));
        TRY(pretokenize_join(&j, begin, end, !step->invert));
        done = from = last = end;
    }
    if (done < view.length)
        TRY(pretokenize_join(&j, done, view.length, step->invert));
    return pretokenize_flush(&j);
}

static enum status rewrite_spaces(const struct run *run, const struct pretokenize_step *step, const struct view *view,
                                  struct aligned *out)
{
    uint32_t code;
    int64_t begin, end;
    view_origin(view, 0, utf8_decode(view->text, &code), &begin, &end);
    bool there =
        view->text[0] == ' ' || (view->length >= step->length && memcmp(view->text, step->text, (size_t)step->length) == 0);
    if (!there && (step->scheme == ALWAYS || (step->scheme == FIRST && begin == run->first)))
        TRY(aligned_append(out, step->text, step->length, begin, end));
    for (int64_t i = 0; i < view->length;) {
        const char *space = memchr(view->text + i, ' ', (size_t)(view->length - i));
        int64_t to = space ? space - view->text : view->length;
        TRY(aligned_copy(out, view, i, to));
        if (space) {
            view_origin(view, to, to + 1, &begin, &end);
            TRY(aligned_append(out, step->text, step->length, begin, end));
        }
        i = to + 1;
    }
    return OK;
}

static enum status run_rewrite(const struct run *run, int64_t k, struct view view)
{
    if (!run->scratch->text && !(run->scratch->text = memory_alloc(run->p->count * (int64_t)sizeof *run->scratch->text)))
        return ERR_MEMORY;
    struct aligned *out = &run->scratch->text[k];
    out->length = 0;
    out->max_length = REPLACEMENT_MAX * (view.length + 1);
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
    case SPACES: TRY(rewrite_spaces(run, &run->p->steps[k], &view, out)); break;
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
                             bool first, pretokenize_sink *sink, void *context)
{
    if (!text.length)
        return OK;
    int64_t begin, end;
    view_origin(&text, 0, 1, &begin, &end);
    const struct run run = {.p = pretokenizer, .scratch = scratch, .sink = sink, .context = context, .first = first ? begin : -1};
    return run_step(&run, 0, text);
}

void pretokenize_scratch_free(const struct pretokenizer *pretokenizer, struct pretokenize_scratch *scratch)
{
    for (int64_t i = 0; scratch->text && i < pretokenizer->count; i++)
        aligned_free(&scratch->text[i]);
    memory_free(scratch->text);
}

static enum status pretokenize_add(struct pretokenizer *p, enum sort sort, struct pretokenize_step **step, const char *where)
{
    if (p->count == STEPS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d steps", where, STEPS_MAX);
    *step = &p->steps[p->count++];
    (*step)->sort = sort;
    return OK;
}

static enum status add_pattern(struct pretokenizer *p, const char *pattern, enum behaviour behaviour, const char *where)
{
    struct pretokenize_step *step = NULL;
    TRY(pretokenize_add(p, SPLIT, &step, where));
    step->behaviour = behaviour;
    step->scanner = scanner_find(pattern, (int64_t)strlen(pattern));
    return step->scanner ? OK : regex_open(&step->pattern, pattern, (int64_t)strlen(pattern), where);
}

static enum status add_scanner(struct pretokenizer *p, const struct scanner *scanner, enum behaviour behaviour, const char *where)
{
    struct pretokenize_step *step = NULL;
    TRY(pretokenize_add(p, SPLIT, &step, where));
    step->behaviour = behaviour;
    step->scanner = scanner;
    return OK;
}

static enum status read_behaviour(const json_t *json, enum behaviour *behaviour, const char *where)
{
    static const char *const NAMES[] = {
        [ISOLATED] = "Isolated",        [REMOVED] = "Removed",       [WITH_PREVIOUS] = "MergedWithPrevious",
        [WITH_NEXT] = "MergedWithNext", [CONTIGUOUS] = "Contiguous",
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
    bool prefix = true, regex = true; /* trim_offsets concerns the post-processor */
    TRY(json_get_bool(json, "add_prefix_space", &prefix, where));
    TRY(json_get_bool(json, "use_regex", &regex, where));
    struct pretokenize_step *step = NULL;
    if (prefix)
        TRY(pretokenize_add(p, PREFIX, &step, where));
    if (regex)
        TRY(add_pattern(p, GPT2, ISOLATED, where));
    return pretokenize_add(p, MAP, &step, where);
}

static enum status pretokenize_open_split(struct pretokenizer *p, const json_t *json, const char *where)
{
    struct pretokenize_step *step = NULL;
    TRY(pretokenize_add(p, SPLIT, &step, where));
    TRY(read_behaviour(json, &step->behaviour, where));
    TRY(json_get_bool(json, "invert", &step->invert, where));
    const json_t *pattern = json_object_get(json, "pattern"), *regex = json_object_get(pattern, "Regex");
    if (json_is_string(regex) && (step->scanner = scanner_find(json_string_value(regex), (int64_t)json_string_length(regex))))
        return OK;
    return regex_open_json(&step->pattern, pattern, where);
}

static enum status open_digits(struct pretokenizer *p, const json_t *json, const char *where)
{
    bool individual = false;
    TRY(json_get_bool(json, "individual_digits", &individual, where));
    return add_scanner(p, &SCANNER_DIGITS, individual ? ISOLATED : CONTIGUOUS, where);
}

static enum status open_punctuation(struct pretokenizer *p, const json_t *json, const char *where)
{
    enum behaviour behaviour;
    TRY(read_behaviour(json, &behaviour, where));
    return add_scanner(p, &SCANNER_PUNCTUATION, behaviour, where);
}

static enum status open_whitespace(struct pretokenizer *p, const json_t *json, const char *where)
{
    (void)json;
    TRY(add_pattern(p, WORDS, REMOVED, where));
    p->steps[p->count - 1].invert = true;
    return OK;
}

static enum status open_whitespace_split(struct pretokenizer *p, const json_t *json, const char *where)
{
    (void)json;
    return add_pattern(p, SPACE, REMOVED, where);
}

static enum status open_delimiter(struct pretokenizer *p, const json_t *json, const char *where)
{
    const char *delimiter = "";
    struct pretokenize_step *step = NULL;
    TRY(json_get_text(json, "delimiter", &delimiter, where));
    if (!*delimiter)
        return fail(ERR_FORMAT, "%s: a CharDelimiterSplit without \"delimiter\"", where);
    TRY(pretokenize_add(p, SPLIT, &step, where));
    step->behaviour = REMOVED;
    return regex_open_literal(&step->pattern, delimiter, (int64_t)strlen(delimiter), where);
}

/* Files from before prepend_scheme have add_prefix_space. */
static enum status pretokenize_open_metaspace(struct pretokenizer *p, const json_t *json, const char *where)
{
    static const char *const SCHEMES[] = {[NEVER] = "never", [FIRST] = "first", [ALWAYS] = "always"};
    const char *replacement = "\xe2\x96\x81", *scheme = NULL;
    bool prefix = true, split = true;
    struct pretokenize_step *step = NULL;
    uint32_t code;
    TRY(json_get_text(json, "replacement", &replacement, where));
    TRY(json_get_text(json, "prepend_scheme", &scheme, where));
    TRY(json_get_bool(json, "add_prefix_space", &prefix, where));
    TRY(json_get_bool(json, "split", &split, where));
    TRY(pretokenize_add(p, SPACES, &step, where));
    step->length = (int64_t)strlen(replacement);
    if (!step->length || utf8_decode(replacement, &code) != step->length)
        return fail(ERR_FORMAT, "%s: \"replacement\" must be one character", where);
    memcpy(step->text, replacement, (size_t)step->length);
    step->scheme = prefix ? ALWAYS : NEVER;
    for (int i = NEVER; scheme && i <= ALWAYS; i++) {
        if (strcmp(scheme, SCHEMES[i]) == 0) {
            step->scheme = (enum scheme)i;
            break;
        }
        if (i == ALWAYS)
            return fail(ERR_FORMAT, "%s: \"prepend_scheme\" cannot be \"%s\"", where, scheme);
    }
    if (!split)
        return OK;
    TRY(pretokenize_add(p, SPLIT, &step, where));
    step->behaviour = WITH_NEXT;
    return regex_open_literal(&step->pattern, replacement, (int64_t)strlen(replacement), where);
}

static const struct kind {
    const char *name;
    enum status (*open)(struct pretokenizer *p, const json_t *json, const char *where);
} KINDS[] = {
    {"ByteLevel", open_byte_level},
    {"Split", pretokenize_open_split},
    {"Digits", open_digits},
    {"Punctuation", open_punctuation},
    {"Metaspace", pretokenize_open_metaspace},
    {"Whitespace", open_whitespace},
    {"WhitespaceSplit", open_whitespace_split},
    {"CharDelimiterSplit", open_delimiter},
};

static const struct sequence_part PART = SEQUENCE_PART("pre-tokenizer", "pretokenizers", KINDS);

static enum status pretokenize_open_step(void *context, const void *row, const json_t *json, const char *where)
{
    const struct kind *kind = row;
    return kind->open(context, json, where);
}

enum status pretokenizer_open(struct pretokenizer *p, const json_t *json, bool bytes, const char *where)
{
    *p = (struct pretokenizer){0};
    if (!json || json_is_null(json))
        return OK;
    if (!(p->steps = memory_alloc(STEPS_MAX * (int64_t)sizeof *p->steps)))
        return ERR_MEMORY;
    TRY(sequence_walk(&PART, json, pretokenize_open_step, p, where));
    for (int64_t i = 0; bytes && i < p->count; i++) {
        if (p->steps[i].sort != MAP)
            continue;
        p->bytes = true;
        for (int64_t k = i + 1; k < p->count; k++)
            if (p->steps[k].sort != SPLIT)
                return fail(ERR_UNSUPPORTED, "%s: a Metaspace after a ByteLevel is not supported", where);
        if (i == p->count - 1) { /* nothing sees the characters: words stay bytes */
            p->count--;
            return OK;
        }
        struct pretokenize_step *step = NULL;
        return pretokenize_add(p, UNMAP, &step, where);
    }
    return OK;
}

void pretokenizer_close(struct pretokenizer *p)
{
    for (int64_t i = 0; i < p->count; i++)
        regex_close(p->steps[i].pattern);
    memory_free(p->steps);
    *p = (struct pretokenizer){0};
}
