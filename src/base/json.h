/* JSON through Jansson, with hone's error messages. A file that includes this may use Jansson's read functions
 * (json_object_get, json_array_foreach, ...) directly; a tree is released with json_decref. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Parses exactly one JSON value. Repeated keys are an error. `where` names the source in messages. */
enum status json_parse(json_t **tree, const char *text, int64_t length, const char *where);
enum status json_parse_file(json_t **tree, const char *path, int64_t max_bytes);

/* Whether a tree of the text takes 40 MB and four times its size at most. Lists without end of {} take seventy times the text:
 * parsing such a text is ERR_LIMIT. */
bool json_affordable(const char *text, int64_t length);

/* Jansson's json_loadb, except that memory that runs out is ERR_MEMORY, with a message. ERR_FORMAT: `error` says what is wrong.
 */
enum status json_load(json_t **tree, const char *text, int64_t length, size_t flags, json_error_t *error);

/* Watches Jansson's allocations, so that what fails for lack of memory is ERR_MEMORY and not ERR_FORMAT. Done when the program
 * starts; once more after json_set_alloc_funcs. */
void json_watch_memory(void);

/* The character of an escape in a JSON string, for readers without a tree. *at stands after the backslash and moves after the
 * escape, of both halves of a pair. */
enum { JSON_NO_ESCAPE = -1, JSON_HALF_PAIR = -2 };
int32_t json_escape(const char **at, const char *end);

/* The same, with every number read as a real: tokenizers are saved with a model_max_length of 10^30, which does not fit into
 * 64 bits. */
enum status json_parse_file_reals(json_t **tree, const char *path, int64_t max_bytes);

/* Members of an object. A wrong type is an error that names `where` and the key; a missing key or null leaves *out as it
 * is (so set the default first), and is an error only in the `need` form. */
enum status json_get_int(const json_t *object, const char *key, int64_t *out, const char *where);
enum status json_get_real(const json_t *object, const char *key, double *out, const char *where);
enum status json_get_bool(const json_t *object, const char *key, bool *out, const char *where);
enum status json_get_text(const json_t *object, const char *key, const char **out, const char *where);
enum status json_need_int(const json_t *object, const char *key, int64_t *out, const char *where);

/* A copy of a member that must be a string, with any zero bytes in it and none after it; the caller frees *text. */
enum status json_copy_text(const json_t *object, const char *key, char **text, int64_t *length, const char *where);

/* A member, or NULL; null counts as absent. */
json_t *json_member(const json_t *object, const char *key);

/* What a value is, for messages: "a string", "a list", ...; NULL is "missing". */
const char *json_kind(const json_t *value);

/* A text that need not be UTF-8, as of a path: what is not becomes question marks. */
json_t *json_lossy(const char *text);

/* A number, or null where JSON cannot express it. */
json_t *json_number(double x);

/* A tree's text, which is freed by json_text_free. Jansson leaves out what it has no memory for, when it builds a tree and when
 * it writes one; so NULL is a message that memory ran out on this thread, here or since the last call. A tree that is NULL is one
 * of these.
 */
char *json_write(const json_t *tree, size_t flags);

/* Frees a text that Jansson has made: by its own function, which a program that has libhone inside may have set. NULL is fine. */
void json_text_free(char *text);

/* Whether memory ran out in this sense. It is asked where something else could be wrong too, and forgotten. */
bool json_refused(void);

/* Replaces a file by the tree, indented, with every digit of its numbers. A tree that is NULL means out of memory. json_file_text
 * is what the file will hold, as json_write gives it. */
char *json_file_text(const json_t *tree);
enum status json_replace_file(const char *path, const json_t *tree);

#endif
