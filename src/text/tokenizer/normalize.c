/* Normalizers: a list of steps, each with one function that rewrites a view. To add a kind, add a row to KINDS.
 *
 * This file owns utf8proc. Unicode forms are computed segment by segment, a segment being what can change together (a base
 * character and its marks, the letters of a Hangul syllable): its result came from the whole segment.
 */
#include "text/tokenizer/normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/sequence.h"
#include "text/unicode.h"

/* utf8proc sorts marks by swapping neighbours, so a character with very many marks would take quadratic time.
 *
 * How many times as long a text may become: a space that is written as U+2581 takes 3 bytes for 1, and so does the longest of NFC
 * and NFD. A compatibility form, or a table of one, makes 33 bytes of U+FDFA's 3. */
enum { STEPS_MAX = 64, SEGMENT_BYTES_MAX = 4096, GROWTH = 4, GROWTH_COMPAT = 12, GROWTH_MAX = 32, GROWTH_EXTRA = 4096 };

struct normalize_step {
    enum status (*run)(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view);
    utf8proc_option_t form;
    struct regex *pattern;
    char *text;
    int64_t length;
    bool left, right;
    struct charsmap map;
};

/* The scratch text that no view uses, emptied. */
static struct aligned *target(struct normalize_scratch *scratch)
{
    struct aligned *out = &scratch->text[scratch->turn];
    out->length = 0;
    return out;
}

static enum status commit(struct normalize_scratch *scratch, struct view *view)
{
    *view = aligned_view(&scratch->text[scratch->turn]);
    scratch->turn = !scratch->turn;
    return OK;
}

static bool is_ascii(const struct view *view)
{
    for (int64_t i = 0; i < view->length; i++)
        if ((uint8_t)view->text[i] >= 0x80)
            return false;
    return true;
}

static const struct {
    uint32_t first, last;
} LATE_CODES[] = {
#define LATE(first, last) {first, last},
#include "text/tokenizer/normalize_late.def"
#undef LATE
};

/* Whether the character is newer than the tables that published tokenizers were made with: it stays as it is, and nothing is
 * sorted or joined across it. */
static bool is_late(uint32_t code)
{
    int low = 0, high = sizeof LATE_CODES / sizeof *LATE_CODES, count = high;
    if (code < LATE_CODES[0].first)
        return false;
    while (low < high) {
        int middle = (low + high) / 2;
        if (LATE_CODES[middle].last >= code)
            high = middle;
        else
            low = middle + 1;
    }
    return (low < count && LATE_CODES[low].first <= code) || unicode_is_new(code);
}

/* Whether nothing before the character can change together with it. */
static bool starts_segment(uint32_t code, utf8proc_option_t form)
{
    if (code < 0x80)
        return true;
    utf8proc_int32_t parts[32];
    int last = 0;
    if (utf8proc_decompose_char((utf8proc_int32_t)code, parts, 32, form, &last) < 1)
        return true;
    const utf8proc_property_t *p = utf8proc_get_property(parts[0]);
    return p->combining_class == 0 && p->boundclass != UTF8PROC_BOUNDCLASS_EXTEND && p->boundclass != UTF8PROC_BOUNDCLASS_V &&
           p->boundclass != UTF8PROC_BOUNDCLASS_T && p->boundclass != UTF8PROC_BOUNDCLASS_SPACINGMARK;
}

static enum status form_segment(const struct normalize_step *step, struct normalize_scratch *scratch, const struct view *view,
                                int64_t from, int64_t to, struct aligned *out)
{
    if (to == from || (to - from == 1 && (uint8_t)view->text[from] < 0x80))
        return aligned_copy(out, view, from, to);
    if (to - from > SEGMENT_BYTES_MAX)
        return fail(ERR_LIMIT, "a character with more than %d bytes of combining marks at byte %lld", SEGMENT_BYTES_MAX,
                    (long long)(view->begin ? view->begin[from] : view->base + from));
    utf8proc_ssize_t n;
    while ((n = utf8proc_decompose((const utf8proc_uint8_t *)view->text + from, to - from, scratch->codes, scratch->capacity,
                                   step->form)) > scratch->capacity) {
        int32_t *codes = memory_resize(scratch->codes, (n + 64) * (int64_t)sizeof *codes);
        if (!codes)
            return ERR_MEMORY;
        scratch->codes = codes;
        scratch->capacity = n + 64;
    }
    if (n > 0)
        n = utf8proc_normalize_utf32(scratch->codes, n, step->form);
    if (n < 0)
        return fail(ERR_INTERNAL, "normalisation failed: %s", utf8proc_errmsg(n));
    int64_t begin, end;
    view_origin(view, from, to, &begin, &end);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        TRY(aligned_append(out, bytes, utf8_encode((uint32_t)scratch->codes[i], bytes), begin, end));
    }
    return OK;
}

static enum status run_form(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    if (is_ascii(view))
        return OK;
    struct aligned *out = target(scratch);
    int64_t from = 0;
    for (int64_t i = 0; i < view->length;) {
        uint32_t code;
        int n = utf8_decode(view->text + i, &code);
        bool late = is_late(code);
        if (i > from && (late || starts_segment(code, step->form))) {
            TRY(form_segment(step, scratch, view, from, i, out));
            from = i;
        }
        if (late) {
            TRY(aligned_copy(out, view, i, i + n));
            from = i + n;
        }
        i += n;
    }
    TRY(form_segment(step, scratch, view, from, view->length, out));
    return commit(scratch, view);
}

static enum status run_lowercase(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    (void)step;
    struct aligned *out = target(scratch);
    for (int64_t i = 0, n; i < view->length; i += n) {
        uint32_t code;
        n = utf8_decode(view->text + i, &code);
        int64_t begin, end;
        view_origin(view, i, i + n, &begin, &end);
        if (code == 0x130) { /* the only character whose lower case is two */
            TRY(aligned_append(out, "i\u0307", 3, begin, end));
            continue;
        }
        char bytes[4];
        TRY(aligned_append(out, bytes, utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), bytes), begin, end));
    }
    return commit(scratch, view);
}

static enum status run_strip_accents(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    (void)step;
    if (is_ascii(view))
        return OK;
    struct aligned *out = target(scratch);
    for (int64_t i = 0, n; i < view->length; i += n) {
        uint32_t code;
        n = utf8_decode(view->text + i, &code);
        if (!(unicode_class(code) & UNICODE_MARK))
            TRY(aligned_copy(out, view, i, i + n));
    }
    return commit(scratch, view);
}

static enum status normalize_run_strip(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    (void)scratch;
    int64_t from = 0, to = view->length;
    uint32_t code;
    for (int n; step->left && from < to && (n = utf8_decode(view->text + from, &code), utf8_is_space(code));)
        from += n;
    while (step->right && from < to && (utf8_decode(view->text + utf8_before(view->text, to), &code), utf8_is_space(code)))
        to = utf8_before(view->text, to);
    *view = view_slice(*view, from, to);
    return OK;
}

static enum status run_prepend(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    struct aligned *out = target(scratch);
    uint32_t code;
    int64_t begin, end;
    view_origin(view, 0, utf8_decode(view->text, &code), &begin, &end);
    TRY(aligned_append(out, step->text, step->length, begin, end));
    TRY(aligned_copy(out, view, 0, view->length));
    return commit(scratch, view);
}

static enum status normalize_run_replace(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    struct aligned *out = target(scratch);
    int64_t done = 0;
    for (;;) {
        int64_t from, to, begin, end;
        TRY(regex_find(step->pattern, scratch->search, view->text, view->length, done, &from, &to));
        if (from < 0)
            break;
        if (from == to)
            return fail(ERR_UNSUPPORTED, "the tokenizer's Replace normalizer matches between characters, which is not supported");
        TRY(aligned_copy(out, view, done, from));
        view_origin(view, from, to, &begin, &end);
        TRY(aligned_append(out, step->text, step->length, begin, end));
        done = to;
    }
    if (!done)
        return OK;
    TRY(aligned_copy(out, view, done, view->length));
    return commit(scratch, view);
}

/* Text that a reader sees as one character is looked up as a whole if it is short, else by its code points: as Hugging
 * Face's Precompiled does, whatever SentencePiece does. */
static enum status map_cluster(const struct normalize_step *step, const struct view *view, int64_t from, int64_t to,
                               struct aligned *out)
{
    enum { SHORT = 6 };
    int64_t begin, end, length;
    const char *text = to - from < SHORT ? charsmap_find(&step->map, view->text + from, to - from, &length) : NULL;
    if (text) {
        view_origin(view, from, to, &begin, &end);
        return aligned_append(out, text, length, begin, end);
    }
    for (int64_t i = from, n; i < to; i += n) {
        uint32_t code;
        n = utf8_decode(view->text + i, &code);
        view_origin(view, i, i + n, &begin, &end);
        text = charsmap_find(&step->map, view->text + i, n, &length);
        TRY(text ? aligned_append(out, text, length, begin, end) : aligned_copy(out, view, i, i + n));
    }
    return OK;
}

static enum status run_charsmap(const struct normalize_step *step, struct normalize_scratch *scratch, struct view *view)
{
    struct aligned *out = target(scratch);
    int64_t from = 0;
    uint32_t code, last = 0;
    int32_t state = 0;
    for (int64_t i = 0; i < view->length; last = code) {
        int n = utf8_decode(view->text + i, &code);
        if (i && unicode_breaks(last, code, &state)) {
            TRY(map_cluster(step, view, from, i, out));
            from = i;
        }
        i += n;
    }
    TRY(map_cluster(step, view, from, view->length, out));
    return commit(scratch, view);
}

static enum status open_form(struct normalize_step *step, const json_t *json, const char *where)
{
    (void)json;
    (void)where;
    step->run = run_form;
    return OK;
}

static enum status open_lowercase(struct normalize_step *step, const json_t *json, const char *where)
{
    (void)json;
    (void)where;
    step->run = run_lowercase;
    return OK;
}

static enum status open_strip_accents(struct normalize_step *step, const json_t *json, const char *where)
{
    (void)json;
    (void)where;
    step->run = run_strip_accents;
    return OK;
}

static enum status normalize_open_strip(struct normalize_step *step, const json_t *json, const char *where)
{
    step->run = normalize_run_strip;
    TRY(json_get_bool(json, "strip_left", &step->left, where));
    return json_get_bool(json, "strip_right", &step->right, where);
}

static enum status open_prepend(struct normalize_step *step, const json_t *json, const char *where)
{
    step->run = run_prepend;
    return json_copy_text(json, "prepend", &step->text, &step->length, where);
}

static enum status normalize_open_replace(struct normalize_step *step, const json_t *json, const char *where)
{
    step->run = normalize_run_replace;
    TRY(json_copy_text(json, "content", &step->text, &step->length, where));
    return regex_open_json(&step->pattern, json_object_get(json, "pattern"), where);
}

static enum status open_charsmap(struct normalize_step *step, const json_t *json, const char *where)
{
    const json_t *map = json_object_get(json, "precompiled_charsmap");
    step->run = run_charsmap;
    if (json_is_null(map))
        return OK;
    if (!json_is_string(map))
        return fail(ERR_FORMAT, "%s: \"precompiled_charsmap\" must be a string", where);
    return charsmap_open(&step->map, json_string_value(map), (int64_t)json_string_length(map), where);
}

static const struct kind {
    const char *name;
    enum status (*open)(struct normalize_step *step, const json_t *json, const char *where);
    utf8proc_option_t form;
} KINDS[] = {
    {"NFC", open_form, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", open_form, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", open_form, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", open_form, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    {"Lowercase", open_lowercase, 0},
    {"StripAccents", open_strip_accents, 0},
    {"Strip", normalize_open_strip, 0},
    {"Prepend", open_prepend, 0},
    {"Replace", normalize_open_replace, 0},
    {"Precompiled", open_charsmap, 0},
};

static const struct sequence_part PART = SEQUENCE_PART("normalizer", "normalizers", KINDS);

static enum status normalize_open_step(void *context, const void *row, const json_t *json, const char *where)
{
    const struct kind *kind = row;
    struct normalizer *normalizer = context;
    if (normalizer->count == STEPS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d steps", where, STEPS_MAX);
    struct normalize_step *step = &normalizer->steps[normalizer->count++];
    step->form = kind->form;
    return kind->open(step, json, where);
}

enum status normalizer_open(struct normalizer *normalizer, const json_t *json, const char *where)
{
    *normalizer = (struct normalizer){0};
    if (!json || json_is_null(json))
        return OK;
    if (!(normalizer->steps = memory_alloc(STEPS_MAX * (int64_t)sizeof *normalizer->steps)))
        return ERR_MEMORY;
    return sequence_walk(&PART, json, normalize_open_step, normalizer, where);
}

void normalizer_close(struct normalizer *normalizer)
{
    for (int64_t i = 0; i < normalizer->count; i++) {
        regex_close(normalizer->steps[i].pattern);
        memory_free(normalizer->steps[i].text);
        charsmap_close(&normalizer->steps[i].map);
    }
    memory_free(normalizer->steps);
    *normalizer = (struct normalizer){0};
}

enum status normalizer_run(const struct normalizer *normalizer, struct normalize_scratch *scratch, struct view *view)
{
    int64_t length = view->length, limit = GROWTH * length;
    for (int64_t i = 0; i < normalizer->count && view->length; i++) {
        const struct normalize_step *step = &normalizer->steps[i];
        bool compat = step->run == run_charsmap || (step->form & UTF8PROC_COMPAT);
        scratch->text[0].max_length = scratch->text[1].max_length =
            GROWTH_EXTRA + (compat ? max(limit, GROWTH_COMPAT * length) : limit);
        TRY(step->run(step, scratch, view));
        if (compat) /* what follows works on the longer text */
            limit = max(limit, min(GROWTH * view->length, GROWTH_MAX * length));
    }
    return OK;
}

void normalize_scratch_free(struct normalize_scratch *scratch)
{
    aligned_free(&scratch->text[0]);
    aligned_free(&scratch->text[1]);
    memory_free(scratch->codes);
}
