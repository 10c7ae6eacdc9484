/* Words for a shell. A reader copies them into one, also those that a stranger chose. */
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/view/out.h"

static bool needs_quotes(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%=";
    return !*word || word[strspn(word, plain)];
}

static bool needs_octal(const char *word)
{
    bool shown = true;
    for (int64_t left = (int64_t)strlen(word); left > 0 && shown;) {
        int n = utf8_next(word, left, &shown);
        word += n;
        left -= n;
    }
    return !shown;
}

/* Between $' and ': a terminal would take a byte of a sequence, and an editor of lines a tab, for a key that was pressed. */
static enum status put_octal(struct buffer *text, const char *word)
{
    TRY(buffer_append(text, "$'", 2));
    for (int64_t left = (int64_t)strlen(word); left > 0;) {
        bool shown;
        int n = utf8_next(word, left, &shown);
        if (shown && !strchr("'\\!", *word))
            TRY(buffer_append(text, word, n));
        else
            for (int i = 0; i < n; i++)
                TRY(buffer_format(text, "\\%03o", (unsigned)(uint8_t)word[i]));
        word += n;
        left -= n;
    }
    return buffer_append(text, "'", 1);
}

enum status out_quoted(struct buffer *text, const char *word)
{
    if (needs_octal(word))
        return put_octal(text, word);
    if (!needs_quotes(word))
        return buffer_format(text, "%s", word);
    TRY(buffer_append(text, "'", 1));
    for (; *word; word++)
        TRY(*word == '\'' ? buffer_append(text, "'\\''", 4) : buffer_append(text, word, 1));
    return buffer_append(text, "'", 1);
}

void out_word(const char *word)
{
    struct buffer text = {0};
    out_print("%s", out_quoted(&text, word) == OK ? text.data : "...");
    buffer_free(&text);
}
