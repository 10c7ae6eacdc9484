/* Reading JSON from front to back: hone's own reader, for everything that Jansson is too slow for.
 *
 * The idea: the caller knows what it builds and asks for it piece by piece, so the same reader gives a tokenizer its vocabulary,
 * a chat template its values and rows their trees, and nothing is made only to be thrown away. It is strict, and it also refuses
 * what is rare (integers of more than 18 digits): a caller that needs those asks for them, or asks Jansson. */
#ifndef BASE_JSON_READER_H
#define BASE_JSON_READER_H

#include "base/json.h"
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

/* Steps into an object or a list ('{' or '['); then next says whether another member follows, or steps out past the closing
 * bracket. */
enum status json_reader_enter(struct json_reader *reader, char bracket);
enum status json_reader_next(struct json_reader *reader, char close, bool *more);

/* The name of a member, and the colon after it. What a span points to lives until the next string is read. */
enum status json_reader_key(struct json_reader *reader, struct json_span *key);
enum status json_reader_string(struct json_reader *reader, struct json_span *text);

/* Makes a string that was just read live as long as the reader's bytes and the arena: one with escapes is copied. */
enum status json_reader_keep(const struct json_reader *reader, struct arena *arena, struct json_span *text);

enum status json_reader_number(struct json_reader *reader, double *number);

/* null, true, false or a number, as Jansson reads them: a number with a point or an exponent is real, the nearest double. */
struct json_scalar {
    json_type type;
    int64_t integer;
    double real;
    bool rounded; /* of json_reader_long_scalar: an integer beyond 64 bits, of which `real` has the first digits */
};

enum status json_reader_scalar(struct json_reader *reader, struct json_scalar *scalar);

/* The same, with integers of any length: what does not fit is a real. */
enum status json_reader_long_scalar(struct json_reader *reader, struct json_scalar *scalar);

/* The bytes of the next value, whatever it is: its end is found, but only its brackets and strings are checked. */
enum status json_reader_value(struct json_reader *reader, struct json_span *value);

/* The first byte of the next value; 0 at the end. */
char json_reader_peek(struct json_reader *reader);

/* Nothing but white space may follow. */
enum status json_reader_end(struct json_reader *reader);

/* ERR_FORMAT, at the place where the reader stands. */
enum status json_reader_fail(const struct json_reader *reader, const char *what);

#endif
