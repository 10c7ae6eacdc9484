/* The JSON of rows, quickly.
 *
 * The idea: Jansson's parser decides what is valid, and it is slow. This one only knows valid JSON of the usual forms; everything
 * else is left to Jansson, which accepts it or says what is wrong and where.
 */
#ifndef DATA_PARSE_H
#define DATA_PARSE_H

#include "base/json.h"

enum { PARSE_SHOWN = 48 };

/* A text of a row for a message: what could do harm on a terminal becomes '?', and its length is limited. Returns out. */
const char *parse_shown(char out[static PARSE_SHOWN], const char *text);

/* The tree that Jansson would give, repeated keys refused and NUL characters allowed in strings, or NULL: not known. Jansson
 * refuses integers beyond 64 bits; here they are reals, as unsigned hashes lose their last digits, unless they lie in a member
 * that is encoded: a template would not print what Python prints. */
json_t *parse_quickly(const char *text, int64_t length);

/* The same, with only Jansson if that fails. ERR_DATA with the cause and its column, and its line in a text of several. A row of
 * more than a megabyte is not read again: Jansson takes a second for 64 MB, and three times their memory. */
enum status parse_row(json_t **tree, const char *text, int64_t length);

#endif
