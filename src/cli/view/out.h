/* The only way out: everything that hone prints leaves through these functions.
 *
 * A format is hone's own, and so are its newlines. Every text among its values may be a stranger's, the name of a file or a
 * tensor: what would control a terminal, hide or mislead in it becomes question marks, and a newline a blank, so that no value
 * makes a line of its own. This is so into a file or a pipe too, which somebody will look at.
 */
#ifndef CLI_VIEW_OUT_H
#define CLI_VIEW_OUT_H

#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"

/* To standard output, and to standard error in one piece. Like printf, without %n, %p and long double. */
void out_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* To standard output, with a newline. */
void out_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same text into a buffer; or with the texts among its values as `escape` appends them. */
typedef enum status out_escape(struct buffer *to, const char *text, int64_t length);
enum status out_format(struct buffer *text, out_escape *escape, const char *format, va_list values)
    __attribute__((format(printf, 3, 0)));

/* A text of several lines that hone laid out, with words of others in it: a help page, YAML. Newlines and tabs stay. */
void out_text(FILE *to, const char *text);

/* JSON on a line of standard output. What cannot be shown is escaped as JSON has it, so that it is the same value. */
void out_json(const char *json);

/* A piece of a model's answer, in whole characters. A model may write anything: on a terminal what cannot be shown becomes
 * signs, except newlines and tabs, and what joins letters or emoji; into a file or a pipe it goes as it is. */
void out_answer(FILE *to, const char *text, size_t length);

/* What hone itself says to a terminal, and what was cleaned before: colours, the lines of progress, tokens as signs. */
void out_raw(FILE *to, const char *text, size_t length);
void out_paint(FILE *to, const char *codes);

/* A word as a shell takes it, between quotes where it must be. What cannot be shown or would be a key of a line's editor is
 * written in octal. Without memory out_word prints dots. */
void out_word(const char *word);
enum status out_quoted(struct buffer *text, const char *word);

#endif
