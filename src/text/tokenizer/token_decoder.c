/* Decoders: steps that rewrite the pieces in turn. To add a kind, add a row to KINDS.
 *
 * Bytes stay bytes, even where they are not UTF-8: a character may be cut in two, and its other half may come later.
 */
#include "text/tokenizer/token_decoder.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/alphabet.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/sequence.h"

enum { STEPS_MAX = 16 };

struct decode_step {
    enum status (*run)(const struct decode_step *step, const struct decode_pieces *in, bool first, struct decode_pieces *out);
    struct regex *pattern;
    char *text;                  /* what is inserted, or stripped */
    int64_t length, start, stop; /* how often it is stripped at the start and at the end */
    bool keep_first;             /* the first piece loses nothing */
};

enum status decode_pieces_add(struct decode_pieces *p, const char *text, int64_t length, bool plain)
{
    TRY(memory_grow(&p->ends, &p->capacity, p->count + 1, (int64_t)sizeof *p->ends));
    TRY(memory_grow(&p->plain, &p->plain_capacity, p->count + 1, (int64_t)sizeof *p->plain));
    TRY(buffer_append(&p->text, text, length));
    p->plain[p->count] = plain;
    p->ends[p->count++] = p->text.size;
    return OK;
}

void decode_pieces_free(struct decode_pieces *p)
{
    buffer_free(&p->text);
    memory_free(p->ends);
    memory_free(p->plain);
    *p = (struct decode_pieces){0};
}

static const char *piece(const struct decode_pieces *p, int64_t i, int64_t *length)
{
    int64_t begin = i ? p->ends[i - 1] : 0;
    *length = p->ends[i] - begin;
    return *length ? p->text.data + begin : "";
}

static enum status run_byte_level(const struct decode_step *step, const struct decode_pieces *in, bool first,
                                  struct decode_pieces *out)
{
    (void)step;
    (void)first;
    for (int64_t i = 0; i < in->count; i++) {
        int64_t length;
        const char *text = piece(in, i, &length);
        if (in->plain[i])
            TRY(buffer_append(&out->text, text, length));
        else
            TRY(alphabet_decode(text, length, &out->text));
    }
    return decode_pieces_add(out, "", 0, false);
}

static enum status run_fuse(const struct decode_step *step, const struct decode_pieces *in, bool first, struct decode_pieces *out)
{
    (void)step;
    (void)first;
    return decode_pieces_add(out, in->text.size ? in->text.data : "", in->text.size, false);
}

static enum status replace_piece(const struct decode_step *step, struct regex_search *search, const char *text, int64_t length,
                                 struct decode_pieces *out)
{
    int64_t done = 0;
    while (done < length) {
        int64_t begin, end;
        TRY(regex_find(step->pattern, search, text, length, done, &begin, &end));
        if (begin < 0)
            break;
        if (begin == end)
            return fail(ERR_UNSUPPORTED, "the tokenizer's Replace decoder matches between characters, which is not supported");
        TRY(buffer_append(&out->text, text + done, begin - done));
        TRY(buffer_append(&out->text, step->text, step->length));
        done = end;
    }
    TRY(buffer_append(&out->text, text + done, length - done));
    return decode_pieces_add(out, "", 0, false);
}

static enum status token_decoder_run_replace(const struct decode_step *step, const struct decode_pieces *in, bool first,
                                             struct decode_pieces *out)
{
    (void)first;
    struct regex_search *search = NULL;
    TRY(regex_search_init(&search));
    enum status status = OK;
    for (int64_t i = 0; i < in->count && status == OK; i++) {
        int64_t length;
        const char *text = piece(in, i, &length);
        bool utf8 = utf8_invalid(text, length) < 0; /* bytes that an earlier step made need not be */
        status = utf8 ? replace_piece(step, search, text, length, out) : decode_pieces_add(out, text, length, false);
    }
    regex_search_free(search);
    return status;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum status run_byte_fallback(const struct decode_step *step, const struct decode_pieces *in, bool first,
                                     struct decode_pieces *out)
{
    (void)step;
    (void)first;
    for (int64_t i = 0; i < in->count; i++) {
        int64_t length;
        const char *text = piece(in, i, &length);
        int high = length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' ? hex_digit(text[3]) : -1;
        int low = high >= 0 ? hex_digit(text[4]) : -1;
        char byte = (char)(high * 16 + low);
        TRY(low >= 0 ? decode_pieces_add(out, &byte, 1, false) : decode_pieces_add(out, text, length, false));
    }
    return OK;
}

static enum status token_decoder_run_strip(const struct decode_step *step, const struct decode_pieces *in, bool first,
                                           struct decode_pieces *out)
{
    for (int64_t i = 0; i < in->count; i++) {
        int64_t length, cut = 0;
        const char *text = piece(in, i, &length);
        int64_t start = i || first ? step->start : 0, stop = step->stop;
        for (; cut < start && length >= step->length && memcmp(text, step->text, (size_t)step->length) == 0; cut++) {
            text += step->length;
            length -= step->length;
        }
        for (cut = 0;
             cut < stop && length >= step->length && memcmp(text + length - step->length, step->text, (size_t)step->length) == 0;
             cut++)
            length -= step->length;
        TRY(decode_pieces_add(out, text, length, false));
    }
    return OK;
}

static enum status run_metaspace(const struct decode_step *step, const struct decode_pieces *in, bool first,
                                 struct decode_pieces *out)
{
    for (int64_t i = 0; i < in->count; i++) {
        int64_t length;
        const char *text = piece(in, i, &length);
        bool keep = i || !first || step->keep_first;
        for (int64_t k = 0; k < length;) {
            if (length - k >= step->length && memcmp(text + k, step->text, (size_t)step->length) == 0) {
                TRY(buffer_append(&out->text, " ", keep));
                k += step->length;
            } else {
                TRY(buffer_append(&out->text, text + k++, 1));
            }
        }
        TRY(decode_pieces_add(out, "", 0, false));
    }
    return OK;
}

static enum status token_decoder_open_replace(struct decode_step *step, const json_t *json, const char *where)
{
    TRY(json_copy_text(json, "content", &step->text, &step->length, where));
    return regex_open_json(&step->pattern, json_object_get(json, "pattern"), where);
}

static enum status token_decoder_open_strip(struct decode_step *step, const json_t *json, const char *where)
{
    TRY(json_copy_text(json, "content", &step->text, &step->length, where));
    TRY(json_get_int(json, "start", &step->start, where));
    TRY(json_get_int(json, "stop", &step->stop, where));
    if (!step->length)
        return fail(ERR_FORMAT, "%s: a Strip of nothing", where);
    return OK;
}

static enum status token_decoder_open_metaspace(struct decode_step *step, const json_t *json, const char *where)
{
    const char *scheme = NULL;
    bool prefix = true;
    TRY(json_copy_text(json, "replacement", &step->text, &step->length, where));
    TRY(json_get_text(json, "prepend_scheme", &scheme, where));
    TRY(json_get_bool(json, "add_prefix_space", &prefix, where));
    step->keep_first = scheme ? strcmp(scheme, "never") == 0 : !prefix;
    if (!step->length)
        return fail(ERR_FORMAT, "%s: \"replacement\" must be one character", where);
    return OK;
}

static enum status open_plain(struct decode_step *step, const json_t *json, const char *where)
{
    (void)step;
    (void)json;
    (void)where;
    return OK;
}

static const struct kind {
    const char *name;
    enum status (*open)(struct decode_step *step, const json_t *json, const char *where);
    enum status (*run)(const struct decode_step *step, const struct decode_pieces *in, bool first, struct decode_pieces *out);
} KINDS[] = {
    {"ByteLevel", open_plain, run_byte_level},
    {"Replace", token_decoder_open_replace, token_decoder_run_replace},
    {"ByteFallback", open_plain, run_byte_fallback},
    {"Fuse", open_plain, run_fuse},
    {"Strip", token_decoder_open_strip, token_decoder_run_strip},
    {"Metaspace", token_decoder_open_metaspace, run_metaspace},
};

static const struct sequence_part PART = SEQUENCE_PART("decoder", "decoders", KINDS);

static enum status token_decoder_open_step(void *context, const void *row, const json_t *json, const char *where)
{
    const struct kind *kind = row;
    struct decoder *d = context;
    if (d->count == STEPS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d steps", where, STEPS_MAX);
    struct decode_step *step = &d->steps[d->count++];
    step->run = kind->run;
    return kind->open(step, json, where);
}

enum status decoder_open(struct decoder *d, const json_t *json, const char *where)
{
    *d = (struct decoder){.spaces = !json || json_is_null(json)};
    if (d->spaces)
        return OK;
    if (!(d->steps = memory_alloc(STEPS_MAX * (int64_t)sizeof *d->steps)))
        return ERR_MEMORY;
    return sequence_walk(&PART, json, token_decoder_open_step, d, where);
}

void decoder_close(struct decoder *d)
{
    for (int64_t i = 0; i < d->count; i++) {
        regex_close(d->steps[i].pattern);
        memory_free(d->steps[i].text);
    }
    memory_free(d->steps);
    *d = (struct decoder){0};
}

enum status decoder_run(const struct decoder *d, struct decode_pieces *pieces, bool first, struct buffer *text)
{
    struct decode_pieces out = {0};
    enum status status = OK;
    for (int64_t i = 0; i < d->count && status == OK; i++) {
        out.count = out.text.size = 0;
        status = d->steps[i].run(&d->steps[i], pieces, first, &out);
        struct decode_pieces done = *pieces;
        *pieces = out;
        out = done;
    }
    for (int64_t i = 0; i < pieces->count && status == OK; i++) {
        int64_t length;
        const char *bytes = piece(pieces, i, &length);
        if (d->spaces && (i || !first))
            status = buffer_append(text, " ", 1);
        if (status == OK)
            status = buffer_append(text, bytes, length);
    }
    decode_pieces_free(&out);
    return status;
}
