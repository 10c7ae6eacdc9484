/* Reading JSON from front to back without building a tree: for vocabularies, which are most of a tokenizer.json and of which a
 * tree would be made only to be thrown away. */
#ifndef BASE_JSON_READER_H
#define BASE_JSON_READER_H

#include "base/memory.h"

/* The bytes must be UTF-8 and outlive the reader. `where` names them in messages. */
struct json_reader {
    const char *start, *at, *end;
    const char *where;
    bool fresh;         /* nothing was read yet of the object or list that was entered last */
    struct buffer text; /* a string with escapes, unescaped */
};

/* A part of the text. */
struct json_span {
    const char *text;
    int64_t length;
};

void json_reader_init(struct json_reader *reader, const char *text, int64_t length, const char *where);
void json_reader_free(struct json_reader *reader);

/* Steps into an object or a list ('{' or '['); then next says whether there is a member more, or steps out by the closing
 * bracket. */
enum status json_reader_enter(struct json_reader *reader, char bracket);
enum status json_reader_next(struct json_reader *reader, char close, bool *more);

/* The name of a member, and the colon behind it. What a span points to lives until the next string is read. */
enum status json_reader_key(struct json_reader *reader, struct json_span *key);
enum status json_reader_string(struct json_reader *reader, struct json_span *text);
enum status json_reader_number(struct json_reader *reader, double *number);

/* The bytes of the next value, whatever it is: its end is found, but only its brackets and strings are checked. */
enum status json_reader_value(struct json_reader *reader, struct json_span *value);

/* The first byte of the next value; 0 at the end. */
char json_reader_peek(struct json_reader *reader);

/* ERR_FORMAT, at the place where the reader stands. */
enum status json_reader_fail(const struct json_reader *reader, const char *what);

#endif
