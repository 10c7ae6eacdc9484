/* PTX text into tokens. A word may hold dots, so that ld.global.v4.f32 and %tid.x are one token each. */
#include "parser.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool word_start(char c)
{
    return isalpha((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static bool word_rest(const char *s)
{
    return isalnum((unsigned char)*s) || *s == '_' || *s == '$' || *s == '%' || *s == '.' || (s[0] == ':' && s[1] == ':') ||
           (s[0] == ':' && s[-1] == ':');
}

static const char *skip(const char *s, int *line)
{
    for (;;) {
        if (*s == '\n') {
            ++*line;
            s++;
        } else if (isspace((unsigned char)*s)) {
            s++;
        } else if (s[0] == '/' && s[1] == '/') {
            while (*s && *s != '\n')
                s++;
        } else if (s[0] == '/' && s[1] == '*') {
            for (s += 2; *s && !(s[0] == '*' && s[1] == '/'); s++)
                *line += *s == '\n';
            s += *s ? 2 : 0;
        } else {
            return s;
        }
    }
}

struct token *lex(const char *text)
{
    size_t room = 1024, count = 0;
    struct token *tokens = malloc(room * sizeof *tokens);
    int line = 1;
    for (const char *s = text; tokens; count++) {
        if (count + 1 >= room) {
            struct token *more = realloc(tokens, (room *= 2) * sizeof *tokens);
            if (!more)
                free(tokens);
            if (!(tokens = more))
                return NULL;
        }
        s = skip(s, &line);
        struct token *t = &tokens[count];
        *t = (struct token){.text = s, .line = line};
        if (!*s) {
            t->kind = TOKEN_END;
            return tokens;
        }
        const char *e = s;
        if (isdigit((unsigned char)*s)) {
            t->kind = TOKEN_NUMBER;
            while (isalnum((unsigned char)*e) || *e == '.')
                e++;
        } else if (word_start(*s)) {
            t->kind = TOKEN_WORD;
            for (e++; word_rest(e); e++)
                ;
        } else if (*s == '"') {
            t->kind = TOKEN_STRING;
            for (e++; *e && *e != '"'; e++)
                ;
            e += *e == '"';
        } else {
            t->kind = TOKEN_PUNCTUATION;
            e++;
        }
        t->length = (uint32_t)(e - s);
        s = e;
    }
    return tokens;
}
