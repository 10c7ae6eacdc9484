/* Translates Oniguruma's patterns into PCRE2's syntax, from left to right, one construct at a time.
 *
 * Most of the syntax is shared, but some of it differs in meaning: \s has U+180E in PCRE2, \w lacks marks, \h is a hex
 * digit in Oniguruma, \v one character, ^ and $ hold at every line, \p{Han} is the script and not its extensions. So only
 * constructs listed here pass; everything else is refused.
 */
#include "text/tokenizer/regex_syntax.h"

#include <string.h>

#include "base/number.h"
#include "text/unicode.h"

#define PC "\\p{Pc}"
#define FRACTIONS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* Oniguruma has them in \w, but not in [\w] */

struct reader {
    const char *at, *start, *end;
    struct buffer *out;
    const char *where;
    bool in_class;
};

static enum status regex_syntax_refuse(const struct reader *r, const char *from, const char *what)
{
    int64_t left = r->end - from;
    return fail(ERR_UNSUPPORTED, "%s: the pattern uses %s, at \"%.*s\", which hone does not support", r->where, what,
                (int)min(left, 20), from);
}

static enum status regex_syntax_put(const struct reader *r, const char *text)
{
    return buffer_append(r->out, text, (int64_t)strlen(text));
}

/* Escapes that are rewritten: outside and inside a class. NULL inside: refused there. */
static const struct {
    char letter;
    const char *outside, *inside;
} ESCAPES[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'h', "[0-9a-fA-F]", "0-9a-fA-F"},
    {'H', "[^0-9a-fA-F]", NULL},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'v', "\\x{0b}", "\\x{0b}"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
};

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool regex_syntax_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* \xHH, \x{H...} and \uHHHH as \x{...}; the reader is after the letter. */
static enum status regex_syntax_hex(struct reader *r, const char *from, int digits)
{
    bool braces = digits == 2 && r->at < r->end && *r->at == '{';
    const char *first = r->at += braces;
    while (r->at < r->end && is_hex(*r->at) && r->at - first < (braces ? 6 : digits))
        r->at++;
    int count = (int)(r->at - first);
    if (!count || (!braces && count != digits) || (braces && (r->at >= r->end || *r->at != '}')))
        return regex_syntax_refuse(r, from, "an escape that is not complete");
    r->at += braces;
    return buffer_format(r->out, "\\x{%.*s}", count, first);
}

/* Classes by name: what PCRE2 knows of them, and what unicode_class adds for code points that are newer. */
static const struct {
    const char *name, *pattern;
    unsigned classes;
} PROPERTIES[] = {
    {"L", "\\p{L}", UNICODE_LETTER},
    {"Lu", "\\p{Lu}", UNICODE_UPPER},
    {"Ll", "\\p{Ll}", UNICODE_LOWER},
    {"Lm", "\\p{Lm}", UNICODE_MODIFIER},
    {"Lo", "\\p{Lo}", UNICODE_LETTER_OTHER},
    {"M", "\\p{M}", UNICODE_MARK},
    {"N", "\\p{N}", UNICODE_NUMBER},
    {"Nd", "\\p{Nd}", UNICODE_DIGIT},
    {"P", "\\p{P}", UNICODE_PUNCTUATION},
    {"S", "\\p{S}", UNICODE_SYMBOL},
    {"Alphabetic", "\\p{Alphabetic}", UNICODE_LETTER},
    {"Han", "\\p{sc:Han}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", 0},
    {"w", "\\p{Alphabetic}\\p{M}\\p{Nd}" PC, UNICODE_LETTER | UNICODE_MARK | UNICODE_DIGIT},
};

enum { PROPERTY_COUNT = sizeof PROPERTIES / sizeof *PROPERTIES };

/* A class of the table and what else is in it, inside [...] or as one of its own. */
static enum status put_class(const struct reader *r, int property, const char *more, bool negated)
{
    uint32_t first, last;
    unsigned classes;
    if (!r->in_class)
        TRY(regex_syntax_put(r, negated ? "[^" : "["));
    TRY(regex_syntax_put(r, PROPERTIES[property].pattern));
    TRY(regex_syntax_put(r, more));
    for (int i = 0; unicode_new(i, &first, &last, &classes); i++)
        if (classes & PROPERTIES[property].classes)
            TRY(buffer_format(r->out, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last));
    return r->in_class ? OK : regex_syntax_put(r, "]");
}

static int find_property(const char *name, int length)
{
    for (int i = 0; i < PROPERTY_COUNT; i++)
        if ((int)strlen(PROPERTIES[i].name) == length && memcmp(PROPERTIES[i].name, name, (size_t)length) == 0)
            return i;
    return -1;
}

/* \d and \w, and what they are not; the reader is after the letter. */
static enum status shorthand(const struct reader *r, const char *from, char letter)
{
    bool word = letter == 'w' || letter == 'W', negated = letter == 'D' || letter == 'W';
    if (negated && r->in_class)
        return letter == 'D' ? regex_syntax_put(r, "\\P{Nd}") : regex_syntax_refuse(r, from, "an escape inside [...]");
    return put_class(r, find_property(word ? "w" : "Nd", word ? 1 : 2), word && !r->in_class ? FRACTIONS : "", negated);
}

/* \p{...}: general categories and Alphabetic as they are, any other name as a script. */
static enum status property(struct reader *r, const char *from, char letter)
{
    if (r->at >= r->end || *r->at != '{')
        return regex_syntax_refuse(r, from, "a property without braces");
    bool negated = ++r->at < r->end && *r->at == '^';
    const char *name = r->at += negated;
    while (r->at < r->end && (regex_syntax_is_letter(*r->at) || *r->at == '_'))
        r->at++;
    int count = (int)(r->at - name);
    if (!count || r->at >= r->end || *r->at != '}')
        return regex_syntax_refuse(r, from, "a property");
    r->at++;
    negated ^= letter == 'P';
    int known = *name == 'w' ? -1 : find_property(name, count);
    if (known >= 0 && (!negated || !r->in_class))
        return put_class(r, known, "", negated);
    bool category = (count <= 2 && strchr("LMNPSZC", name[0])) || (count == 10 && memcmp(name, "Alphabetic", 10) == 0);
    return buffer_format(r->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', category ? "" : "sc:", count, name);
}

static enum status regex_syntax_escape(struct reader *r)
{
    const char *from = r->at++;
    if (r->at >= r->end)
        return regex_syntax_refuse(r, from, "a backslash at its end");
    char c = *r->at++;
    if (c == 'p' || c == 'P')
        return property(r, from, c);
    if (memchr("dDwW", c, 4))
        return shorthand(r, from, c);
    if (c == 'x' || c == 'u')
        return regex_syntax_hex(r, from, c == 'x' ? 2 : 4);
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        if (ESCAPES[i].letter != c)
            continue;
        const char *text = r->in_class ? ESCAPES[i].inside : ESCAPES[i].outside;
        return text ? regex_syntax_put(r, text) : regex_syntax_refuse(r, from, "an escape inside [...]");
    }
    if (regex_syntax_is_letter(c) || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80)
        return regex_syntax_refuse(r, from, "an escape");
    return buffer_append(r->out, from, 2);
}

static enum status class(struct reader *r) {
    const char *from = r->at++; TRY(regex_syntax_put(r, "[")); r->in_class = true;
    if (r->at < r->end && *r->at == '^'){TRY(regex_syntax_put(r, "^")); r->at++;}
for (const char *first = r->at; r->at < r->end;)
{
    char c = *r->at;
    if (c == ']' && r->at > first) {
        r->at++;
        r->in_class = false;
        return regex_syntax_put(r, "]");
    }
    if (c == '[' || c == ']' || (c == '&' && r->end - r->at > 1 && r->at[1] == '&'))
        return regex_syntax_refuse(r, from, "a set inside a set");
    if (c == '\\') {
        TRY(regex_syntax_escape(r));
    } else {
        TRY(buffer_append(r->out, r->at, 1));
        r->at++;
    }
}
return regex_syntax_refuse(r, from, "[ without ]");
}

/* What may follow "(?". An option without ":" reaches over | in Oniguruma, so it is accepted only at the very beginning. */
static enum status group(struct reader *r)
{
    static const char *const KINDS[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    int64_t left = r->end - r->at;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        int64_t n = (int64_t)strlen(KINDS[i]);
        if (left >= n && memcmp(r->at, KINDS[i], (size_t)n) == 0) {
            r->at += n;
            return regex_syntax_put(r, KINDS[i]);
        }
    }
    if (r->at == r->start && left >= 4 && memcmp(r->at, "(?i)", 4) == 0) {
        r->at += 4;
        return regex_syntax_put(r, "(?i)");
    }
    if (left >= 2 && (r->at[1] == '?' || r->at[1] == '*'))
        return regex_syntax_refuse(r, r->at, "a group");
    r->at++;
    return regex_syntax_put(r, "(?:"); /* no back references here, so nothing needs to be captured */
}

/* {n}, {n,}, {n,m} and {,m}; any other { is a plain character in both libraries. */
static enum status interval(struct reader *r)
{
    const char *from = r->at, *p = from + 1, *low = p;
    while (p < r->end && *p >= '0' && *p <= '9')
        p++;
    const char *low_end = p, *high = p;
    bool comma = p < r->end && *p == ',';
    if (comma)
        for (high = ++p; p < r->end && *p >= '0' && *p <= '9';)
            p++;
    if (p >= r->end || *p != '}' || (low == low_end && high == p)) {
        r->at++;
        return regex_syntax_put(r, "\\{");
    }
    if (p + 1 < r->end && (p[1] == '+' || (p[1] == '?' && !comma)))
        return regex_syntax_refuse(r, from, "a quantifier after {}");
    r->at = p + 1;
    if (!comma)
        return buffer_format(r->out, "{%.*s}", (int)(low_end - low), low);
    return buffer_format(r->out, "{%.*s,%.*s}", low == low_end ? 1 : (int)(low_end - low), low == low_end ? "0" : low,
                         (int)(p - high), high);
}

enum status regex_translate(const char *pattern, int64_t length, struct buffer *out, const char *where)
{
    struct reader r = {.at = pattern, .start = pattern, .end = pattern + length, .out = out, .where = where};
    TRY(buffer_reserve(out, length));
    while (r.at < r.end) {
        switch (*r.at) {
        case '\\': TRY(regex_syntax_escape(&r)); break;
        case '[': TRY(class(&r)); break;
        case '(': TRY(group(&r)); break;
        case '{': TRY(interval(&r)); break;
        case '^':
            TRY(regex_syntax_put(&r, "(?m:^)"));
            r.at++;
            break;
        case '$':
            TRY(regex_syntax_put(&r, "(?m:$)"));
            r.at++;
            break;
        default: TRY(buffer_append(out, r.at, 1)); r.at++;
        }
    }
    return OK;
}
