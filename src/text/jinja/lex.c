/* Cuts a template into tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks.
 *
 * The idea: outside of tags everything is data up to the next {{, {% or {#. Only this file removes whitespace on both
 * sides of a tag: "-" removes all of it, a block or comment removes the blanks before it on its line (unless "+") and
 * one newline after it (unless "+").
 */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/ast.h"

struct lexer {
    struct jinja *jinja;
    const char *source;
    int64_t size, at;
    int line;
    bool line_start; /* the previous tag ended with a newline, or there was none */
    struct token *token;
    int64_t count, capacity;
};

static enum status lex_broken(const struct lexer *lexer, const char *what)
{
    return fail(ERR_FORMAT, "%s:%d: %s", lexer->jinja->where, lexer->line, what);
}

static enum status lex_push(struct lexer *lexer, enum token_kind kind, const char *text, int64_t size)
{
    TRY(memory_grow(&lexer->token, &lexer->capacity, lexer->count + 1, (int64_t)sizeof *lexer->token));
    lexer->token[lexer->count++] = (struct token){kind, lexer->line, text, size};
    return OK;
}

static enum status push_copy(struct lexer *lexer, enum token_kind kind, const char *text, int64_t size)
{
    char *copy = arena_text(&lexer->jinja->arena, text, size);
    return copy ? lex_push(lexer, kind, copy, size) : ERR_MEMORY;
}

static void advance(struct lexer *lexer, int64_t to)
{
    for (; lexer->at < to; lexer->at++)
        lexer->line += lexer->source[lexer->at] == '\n';
}

static int64_t lex_skip_space(const struct lexer *lexer, int64_t at)
{
    while (at < lexer->size) {
        int32_t code;
        int64_t next = char_next(lexer->source, lexer->size, at, &code);
        if (!unicode_space(code))
            break;
        at = next;
    }
    return at;
}

static bool lex_starts(const struct lexer *lexer, int64_t at, const char *text)
{
    int64_t n = (int64_t)strlen(text);
    return at + n <= lexer->size && memcmp(lexer->source + at, text, (size_t)n) == 0;
}

/* The data up to `end`, where a tag with this sign begins. */
static enum status push_data(struct lexer *lexer, int64_t end, char sign, bool is_print)
{
    int64_t begin = lexer->at, stop = end;
    const char *s = lexer->source;
    if (sign == '-') {
        while (stop > begin) {
            int32_t code;
            int64_t before = char_back(s, stop, &code);
            if (before < begin || !unicode_space(code))
                break;
            stop = before;
        }
    } else if (sign != '+' && !is_print) {
        int64_t line = stop;
        while (line > begin && s[line - 1] != '\n')
            line--;
        if (line > begin || lexer->line_start) {
            int64_t blank = lex_skip_space(lexer, line);
            if (blank >= end)
                stop = line;
        }
    }
    if (stop > begin)
        TRY(push_copy(lexer, TOKEN_DATA, s + begin, stop - begin));
    advance(lexer, end);
    return OK;
}

/* If a tag ends at `at`, its end including the whitespace it removes; -1 if not. */
static int64_t tag_end(const struct lexer *lexer, int64_t at, const char *close, bool plus, bool newline)
{
    if (lex_starts(lexer, at, "-") && lex_starts(lexer, at + 1, close))
        return lex_skip_space(lexer, at + 1 + (int64_t)strlen(close));
    if (plus && lex_starts(lexer, at, "+") && lex_starts(lexer, at + 1, close))
        return at + 1 + (int64_t)strlen(close);
    if (!lex_starts(lexer, at, close))
        return -1;
    at += (int64_t)strlen(close);
    return newline && lex_starts(lexer, at, "\n") ? at + 1 : at;
}

static void leave_tag(struct lexer *lexer, int64_t end)
{
    advance(lexer, end);
    lexer->line_start = lexer->source[end - 1] == '\n';
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

static bool lex_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of a {%raw%} or {%endraw%} word and its closing at `at` (after the sign), or -1. */
static int64_t raw_word(const struct lexer *lexer, int64_t at, const char *word, bool plus, bool newline)
{
    at = lex_skip_space(lexer, at);
    if (!lex_starts(lexer, at, word))
        return -1;
    return tag_end(lexer, lex_skip_space(lexer, at + (int64_t)strlen(word)), "%}", plus, newline);
}

static char sign_at(const struct lexer *lexer, int64_t at)
{
    return at < lexer->size && (lexer->source[at] == '-' || lexer->source[at] == '+') ? lexer->source[at] : 0;
}

static enum status lex_raw(struct lexer *lexer, int64_t body)
{
    leave_tag(lexer, body);
    for (int64_t at = body; at + 1 < lexer->size; at++) {
        if (!lex_starts(lexer, at, "{%"))
            continue;
        char sign = sign_at(lexer, at + 2);
        int64_t end = raw_word(lexer, at + 2 + (sign != 0), "endraw", true, true);
        if (end < 0)
            continue;
        TRY(push_data(lexer, at, sign, false));
        leave_tag(lexer, end);
        return OK;
    }
    return lex_broken(lexer, "a raw block without {% endraw %}");
}

static int lex_hex(char c)
{
    return lex_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One escape sequence after a backslash at in[at]; Python's rules, where an unknown one stays as it is. */
static enum status unescape(const struct lexer *lexer, const char *in, int64_t size, int64_t *at, char *out, int64_t *n)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = in[*at];
    if (c == '\n') {
        ++*at;
        return OK;
    }
    for (const char *p = plain; *p; p += 2) {
        if (*p == c) {
            out[(*n)++] = p[1];
            ++*at;
            return OK;
        }
    }
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
        for (int i = 0; i < 3 && *at < size && in[*at] >= '0' && in[*at] <= '7'; i++)
            code = code * 8 + (uint32_t)(in[(*at)++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        ++*at;
        for (int i = 0; i < digits; i++, ++*at) {
            int h = *at < size ? lex_hex(in[*at]) : -1;
            if (h < 0)
                return lex_broken(lexer, "a string with a broken \\x, \\u or \\U escape");
            code = code << 4 | (uint32_t)h;
        }
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return lex_broken(lexer, "a string with an escape that is not a character");
    } else if (c == 'N') {
        return fail(ERR_UNSUPPORTED, "%s:%d: strings with \\N{name} escapes", lexer->jinja->where, lexer->line);
    } else {
        out[(*n)++] = '\\';
        return OK;
    }
    *n += utf8_encode(code, out + *n);
    return OK;
}

static enum status lex_string(struct lexer *lexer)
{
    const char *s = lexer->source;
    int64_t begin = lexer->at + 1, end = begin;
    while (end < lexer->size && s[end] != s[lexer->at])
        end += s[end] == '\\' ? 2 : 1;
    if (end >= lexer->size)
        return lex_broken(lexer, "a string without its closing quote");
    char *out = arena_alloc(&lexer->jinja->arena, end - begin + 1); /* an escape never grows */
    if (!out)
        return ERR_MEMORY;
    int64_t n = 0;
    for (int64_t at = begin; at < end;) {
        if (s[at] == '\\') {
            at++;
            TRY(unescape(lexer, s, end, &at, out, &n));
        } else {
            out[n++] = s[at++];
        }
    }
    TRY(lex_push(lexer, TOKEN_STRING, out, n));
    advance(lexer, end + 1);
    return OK;
}

/* A number without its underscores. */
static enum status lex_number(struct lexer *lexer)
{
    const char *s = lexer->source;
    int64_t at = lexer->at;
    bool real = false;
    if (s[at] == '0' && at + 2 < lexer->size && strchr("xXoObB", s[at + 1]) && lex_hex(s[at + 2]) >= 0) {
        at += 2;
        while (at < lexer->size && (lex_hex(s[at]) >= 0 || s[at] == '_'))
            at++;
    } else {
        while (at < lexer->size && (lex_digit(s[at]) || (s[at] == '_' && at + 1 < lexer->size && lex_digit(s[at + 1]))))
            at++;
        bool after_dot = lexer->at > 0 && s[lexer->at - 1] == '.';
        if (!after_dot && at + 1 < lexer->size && s[at] == '.' && lex_digit(s[at + 1])) {
            real = true;
            at++;
            while (at < lexer->size && (lex_digit(s[at]) || s[at] == '_'))
                at++;
        }
        int64_t exponent = at + 1;
        if (exponent < lexer->size && (s[exponent] == '+' || s[exponent] == '-'))
            exponent++;
        if (!after_dot && exponent < lexer->size && (s[at] == 'e' || s[at] == 'E') && lex_digit(s[exponent])) {
            real = true;
            at = exponent;
            while (at < lexer->size && lex_digit(s[at]))
                at++;
        }
    }
    char *copy = arena_alloc(&lexer->jinja->arena, at - lexer->at + 1);
    if (!copy)
        return ERR_MEMORY;
    int64_t n = 0;
    for (int64_t i = lexer->at; i < at; i++)
        if (s[i] != '_')
            copy[n++] = s[i];
    TRY(lex_push(lexer, real ? TOKEN_FLOAT : TOKEN_INT, copy, n));
    advance(lexer, at);
    return OK;
}

/* The inside of {{ }} or {% %}. Within brackets a closing mark belongs to the expression: {{ {'a': {}} }}. */
static enum status lex_inside(struct lexer *lexer, bool is_print)
{
    static const char *const operators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";",
    };
    int64_t open = 0;
    int first = lexer->line;
    for (;;) {
        int64_t space = lex_skip_space(lexer, lexer->at);
        if (space > lexer->at)
            advance(lexer, space);
        if (lexer->at >= lexer->size) {
            lexer->line = first;
            return lex_broken(lexer, is_print ? "{{ without }}" : "{% without %}");
        }
        if (open == 0) {
            int64_t end = tag_end(lexer, lexer->at, is_print ? "}}" : "%}", !is_print, !is_print);
            if (end >= 0) {
                TRY(lex_push(lexer, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, "", 0));
                leave_tag(lexer, end);
                return OK;
            }
        }
        char c = lexer->source[lexer->at];
        if (lex_digit(c)) {
            TRY(lex_number(lexer));
            continue;
        }
        if (name_byte(c)) {
            int64_t end = lexer->at;
            while (end < lexer->size && name_byte(lexer->source[end]))
                end++;
            TRY(push_copy(lexer, TOKEN_NAME, lexer->source + lexer->at, end - lexer->at));
            advance(lexer, end);
            continue;
        }
        if (c == '\'' || c == '"') {
            TRY(lex_string(lexer));
            continue;
        }
        size_t i = 0, count = sizeof operators / sizeof *operators;
        while (i < count && !lex_starts(lexer, lexer->at, operators[i]))
            i++;
        if (i == count)
            return fail(ERR_FORMAT, "%s:%d: unexpected character '%.1s' in a tag", lexer->jinja->where, lexer->line,
                        lexer->source + lexer->at);
        open += strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
        if (open < 0)
            return lex_broken(lexer, "a bracket is closed that was not opened");
        TRY(lex_push(lexer, TOKEN_OPERATOR, operators[i], (int64_t)strlen(operators[i])));
        advance(lexer, lexer->at + (int64_t)strlen(operators[i]));
    }
}

static enum status lex_comment(struct lexer *lexer)
{
    for (int64_t at = lexer->at; at < lexer->size; at++) {
        int64_t end = tag_end(lexer, at, "#}", true, true);
        if (end >= 0) {
            leave_tag(lexer, end);
            return OK;
        }
    }
    return lex_broken(lexer, "{# without #}");
}

static enum status lex_all(struct lexer *lexer)
{
    for (int64_t at = 0; at + 1 < lexer->size;) {
        char kind = lexer->source[at] == '{' ? lexer->source[at + 1] : 0;
        if (kind != '{' && kind != '%' && kind != '#') {
            at++;
            continue;
        }
        char sign = sign_at(lexer, at + 2);
        TRY(push_data(lexer, at, sign, kind == '{'));
        int64_t inside = at + 2 + (sign != 0);
        int64_t raw = kind == '%' ? raw_word(lexer, inside, "raw", false, false) : -1;
        if (raw >= 0) {
            TRY(lex_raw(lexer, raw));
        } else {
            if (kind != '#')
                TRY(lex_push(lexer, kind == '{' ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, "", 0));
            advance(lexer, inside);
            if (kind == '#')
                TRY(lex_comment(lexer));
            else
                TRY(lex_inside(lexer, kind == '{'));
        }
        at = lexer->at;
    }
    if (lexer->at < lexer->size)
        TRY(push_copy(lexer, TOKEN_DATA, lexer->source + lexer->at, lexer->size - lexer->at));
    return lex_push(lexer, TOKEN_END, "", 0);
}

enum status jinja_lex(struct jinja *jinja, const char *source, int64_t length, struct token **out)
{
    char *copy = arena_alloc(&jinja->arena, length + 1);
    if (!copy)
        return ERR_MEMORY;
    int64_t n = 0;
    for (int64_t i = 0; i < length; i++) {
        bool cr = source[i] == '\r';
        if (cr && i + 1 < length && source[i + 1] == '\n')
            i++;
        copy[n++] = cr ? '\n' : source[i];
    }
    if (n && copy[n - 1] == '\n')
        n--;
    struct lexer lexer = {.jinja = jinja, .source = copy, .size = n, .line = 1, .line_start = true};
    enum status status = lex_all(&lexer);
    if (status == OK)
        *out = lexer.token;
    else
        memory_free(lexer.token);
    return status;
}
