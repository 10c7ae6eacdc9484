/* What string methods and filters do to strings: strip, split, replace, change case. All by slices and builders, so that
 * every byte keeps its origin. */
#include "base/utf8.h"
#include "text/unicode.h"
#include <string.h>

#include "text/jinja/value.h"

static enum status need_text(struct render *render, struct value value, const char *what)
{
    return value.kind == VALUE_TEXT ? OK : render_fail(render, ERR_DATA, "%s needs a string, not %s", what, value_type(value));
}

/* What is stripped: the characters of a text, or white space. */
struct stripping {
    const struct text *set; /* NULL: white space */
    bool ascii[128];        /* those of the set */
};

static enum status stripping_of(struct render *render, const struct text *set, struct stripping *out)
{
    *out = (struct stripping){.set = set};
    for (int64_t i = 0; set && i < set->size; i++)
        if ((uint8_t)set->data[i] < 128)
            out->ascii[(uint8_t)set->data[i]] = true;
    return render_step(render, set ? set->size / CHARS_A_STEP : 0);
}

static enum status stripped(struct render *render, int32_t code, const struct stripping *s, bool *out)
{
    *out = s->set ? code >= 0 && code < 128 && s->ascii[code] : unicode_space(code);
    if (!s->set || (code >= 0 && code < 128))
        return OK;
    for (int64_t at = 0; at < s->set->size && !*out;) {
        int32_t other;
        at = char_next(s->set->data, s->set->size, at, &other);
        *out = other == code;
    }
    return render_step(render, s->set->size / CHARS_A_STEP);
}

static enum status strip(struct render *render, struct value self, const struct args *args, bool left, bool right,
                         struct value *out)
{
    struct value chars = {0};
    struct stripping s;
    TRY(args_bind(render, args, "strip", "chars", 0, &chars));
    TRY(value_string(render, self, &self));
    if (chars.kind != VALUE_ABSENT && chars.kind != VALUE_NONE)
        TRY(need_text(render, chars, "strip"));
    TRY(stripping_of(render, chars.kind == VALUE_TEXT ? chars.text : NULL, &s));
    const struct text *text = self.text;
    int64_t begin = 0, end = text->size;
    bool more = left;
    while (more && begin < end) {
        int32_t code;
        int64_t next = char_next(text->data, end, begin, &code);
        TRY(stripped(render, code, &s, &more));
        begin = more ? next : begin;
    }
    more = right;
    while (more && begin < end) {
        int32_t code;
        int64_t before = char_back(text->data, end, &code);
        if (before < begin)
            break;
        TRY(stripped(render, code, &s, &more));
        end = more ? before : end;
    }
    TRY(render_step(render, (begin + text->size - end) / 3));
    return text_slice(render, text, begin, end, out);
}

enum status text_strip_both(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return strip(render, self, args, true, true, out);
}

enum status text_strip_left(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return strip(render, self, args, true, false, out);
}

enum status text_strip_right(struct render *render, struct value self, const struct args *args, struct value *out)
{
    return strip(render, self, args, false, true, out);
}

enum status text_replace(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[3] = {{0}};
    TRY(args_bind(render, args, "replace", "old new count", 2, v));
    TRY(value_string(render, self, &self));
    TRY(value_string(render, v[0], &v[0]));
    TRY(value_string(render, v[1], &v[1]));
    const struct text *text = self.text, *old = v[0].text, *new = v[1].text;
    int64_t left = v[2].kind == VALUE_INT && v[2].integer >= 0 ? v[2].integer : INT64_MAX;
    struct builder *builder;
    TRY(builder_new(render, &builder));
    int64_t begin = 0;
    for (int64_t from = 0; left > 0; left--) {
        int64_t at;
        TRY(render_step(render, 1));
        TRY(text_find(render, text, old, from, &at));
        if (at < 0)
            break;
        TRY(builder_slice(builder, text, begin, at));
        TRY(builder_text(builder, new));
        begin = at + old->size;
        from = begin;
        if (old->size == 0) { /* Python puts the new text between all characters */
            if (at >= text->size)
                break;
            from = char_next(text->data, text->size, at, NULL);
        }
    }
    TRY(builder_slice(builder, text, begin, text->size));
    return builder_value(builder, out);
}

/* A list that grows; finished by handing it out. */
struct pieces {
    struct value list;
    int64_t capacity;
};

static enum status string_methods_add_piece(struct render *render, struct pieces *pieces, const struct text *text, int64_t begin,
                                            int64_t end)
{
    TRY(render_step(render, 1));
    if (pieces->list.kind == VALUE_ABSENT) {
        TRY(value_list(render, VALUE_LIST, 4, &pieces->list));
        pieces->list.list->count = 0;
        pieces->capacity = 4;
    }
    struct list *list = pieces->list.list;
    if (list->count == pieces->capacity) {
        struct value *item;
        TRY(render_alloc(render, pieces->capacity * 2, (int64_t)sizeof *item, &item));
        memcpy(item, list->item, (size_t)list->count * sizeof *item);
        list->item = item;
        pieces->capacity *= 2;
    }
    return text_slice(render, text, begin, end, &list->item[list->count++]);
}

static enum status string_methods_hand_out(struct render *render, struct pieces *pieces, bool reverse, struct value *out)
{
    if (pieces->list.kind == VALUE_ABSENT)
        return value_list(render, VALUE_LIST, 0, out);
    struct list *list = pieces->list.list;
    for (int64_t i = 0, j = list->count - 1; reverse && i < j; i++, j--) {
        struct value swap = list->item[i];
        list->item[i] = list->item[j];
        list->item[j] = swap;
    }
    *out = pieces->list;
    return OK;
}

static enum status split_spaces(struct render *render, const struct text *text, int64_t max_splits, struct value *out)
{
    struct pieces pieces = {0};
    TRY(render_step(render, text->size / CHARS_A_STEP));
    for (int64_t at = 0;;) {
        int32_t code = 0;
        int64_t next = at;
        while (at < text->size && unicode_space((next = char_next(text->data, text->size, at, &code), code)))
            at = next;
        if (at >= text->size)
            break;
        int64_t begin = at;
        while (at < text->size && !unicode_space((next = char_next(text->data, text->size, at, &code), code)))
            at = next;
        if (max_splits-- == 0) { /* the rest, with its trailing space, as in Python */
            TRY(string_methods_add_piece(render, &pieces, text, begin, text->size));
            break;
        }
        TRY(string_methods_add_piece(render, &pieces, text, begin, at));
    }
    return string_methods_hand_out(render, &pieces, false, out);
}

static enum status split_bind(struct render *render, struct value self, const struct args *args, struct value v[2],
                              int64_t *max_splits)
{
    TRY(args_bind(render, args, "split", "sep maxsplit", 0, v));
    TRY(need_text(render, self, "split"));
    *max_splits = v[1].kind == VALUE_INT && v[1].integer >= 0 ? v[1].integer : INT64_MAX;
    if (v[0].kind == VALUE_ABSENT || v[0].kind == VALUE_NONE)
        return OK;
    TRY(need_text(render, v[0], "split"));
    return v[0].text->size ? OK : render_fail(render, ERR_DATA, "split: empty separator");
}

enum status text_split(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    int64_t max_splits;
    TRY(split_bind(render, self, args, v, &max_splits));
    const struct text *text = self.text;
    if (v[0].kind != VALUE_TEXT)
        return split_spaces(render, text, max_splits, out);
    struct pieces pieces = {0};
    int64_t begin = 0;
    for (; max_splits > 0; max_splits--) {
        int64_t at;
        TRY(text_find(render, text, v[0].text, begin, &at));
        if (at < 0)
            break;
        TRY(string_methods_add_piece(render, &pieces, text, begin, at));
        begin = at + v[0].text->size;
    }
    TRY(string_methods_add_piece(render, &pieces, text, begin, text->size));
    return string_methods_hand_out(render, &pieces, false, out);
}

enum status text_rsplit(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value v[2] = {{0}};
    int64_t max_splits;
    TRY(split_bind(render, self, args, v, &max_splits));
    if (v[0].kind != VALUE_TEXT) {
        if (max_splits != INT64_MAX)
            return render_fail(render, ERR_UNSUPPORTED, "rsplit at whitespace with a maxsplit");
        return split_spaces(render, self.text, max_splits, out);
    }
    const struct text *text = self.text, *part = v[0].text;
    struct pieces pieces = {0};
    int64_t end = text->size;
    TRY(render_step(render, text->size / 64 * (part->size / 64 + 1)));
    for (int64_t at = end - part->size; at >= 0 && max_splits > 0; at--) {
        if (memcmp(text->data + at, part->data, (size_t)part->size) != 0)
            continue;
        TRY(string_methods_add_piece(render, &pieces, text, at + part->size, end));
        end = at;
        at = end - part->size + 1;
        max_splits--;
    }
    TRY(string_methods_add_piece(render, &pieces, text, 0, end));
    return string_methods_hand_out(render, &pieces, true, out);
}

enum status text_splitlines(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value keep = {0};
    TRY(args_bind(render, args, "splitlines", "keepends", 0, &keep));
    TRY(need_text(render, self, "splitlines"));
    const struct text *text = self.text;
    struct pieces pieces = {0};
    TRY(render_step(render, text->size / CHARS_A_STEP));
    int64_t begin = 0;
    for (int64_t at = 0, next; at < text->size; at = next) {
        int32_t code;
        next = char_next(text->data, text->size, at, &code);
        bool ends =
            (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029;
        if (!ends)
            continue;
        if (code == '\r' && next < text->size && text->data[next] == '\n')
            next++;
        TRY(string_methods_add_piece(render, &pieces, text, begin, value_true(keep) ? next : at));
        begin = next;
    }
    if (begin < text->size)
        TRY(string_methods_add_piece(render, &pieces, text, begin, text->size));
    return string_methods_hand_out(render, &pieces, false, out);
}

enum letters { UPPER, LOWER, TITLE, CAPITALIZE, FILTER_TITLE };

static bool string_methods_is_letter(int32_t code)
{
    return unicode_upper(code) != code || unicode_lower(code) != code;
}

/* One to one by Unicode's simple mappings, and the one longer mapping that is common: sharp s in capitals. */
static enum status change_case(struct render *render, struct value self, enum letters letters, struct value *out)
{
    TRY(value_string(render, self, &self));
    const struct text *text = self.text;
    struct builder *builder;
    TRY(builder_new(render, &builder));
    builder->markup = text->markup;
    TRY(render_step(render, text->size / CHARS_A_STEP));
    bool inside = false; /* a word has begun, so its next letters are small */
    int64_t run_end = 0;
    int32_t origin = NO_MESSAGE;
    for (int64_t at = 0, next; at < text->size; at = next) {
        int32_t code;
        char bytes[4];
        next = char_next(text->data, text->size, at, &code);
        if (at >= run_end)
            origin = text_run(text, at, &run_end);
        bool large = letters == UPPER || (letters != LOWER && !inside);
        if (letters == TITLE)
            inside = string_methods_is_letter(code);
        else if (letters == FILTER_TITLE) /* jinja2's own rule: a word begins after -, space, ( { [ < */
            inside = !(unicode_space(code) || (code < 0x80 && code > 0 && strchr("-({[<", code)));
        else
            inside = true;
        if (large && code == 0xdf) {
            TRY(builder_bytes(builder, letters == UPPER ? "SS" : "Ss", 2, origin));
            continue;
        }
        if (code == 0xfffd) {
            TRY(builder_bytes(builder, text->data + at, next - at, origin));
            continue;
        }
        int32_t changed = large ? letters == UPPER ? unicode_upper(code) : unicode_title(code) : unicode_lower(code);
        TRY(builder_bytes(builder, bytes, utf8_encode((uint32_t)changed, bytes), origin));
    }
    return builder_value(builder, out);
}

enum status text_upper(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "upper", "", 0, NULL));
    return change_case(render, self, UPPER, out);
}

enum status text_lower(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "lower", "", 0, NULL));
    return change_case(render, self, LOWER, out);
}

enum status text_title(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "title", "", 0, NULL));
    return change_case(render, self, TITLE, out);
}

enum status text_title_words(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "title", "", 0, NULL));
    return change_case(render, self, FILTER_TITLE, out);
}

enum status text_capitalize(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "capitalize", "", 0, NULL));
    return change_case(render, self, CAPITALIZE, out);
}
