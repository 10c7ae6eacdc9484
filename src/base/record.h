/* Records: structs as JSON objects, by tables that name each member once.
 *
 *     static const struct record_field fields[] = {
 *         RECORD(struct plan, peak_bytes), RECORD_AS("hidden_size", struct plan, channels), RECORD_MADE("table", table_json),
 *         {0}};
 *     json_t *tree = record_json(fields, &plan);
 *
 * The kind of a member follows from its type. Keys come in the order of the table.
 */
#ifndef BASE_RECORD_H
#define BASE_RECORD_H

#include <stddef.h>

#include "base/json.h"

/* NUMBER: null where JSON cannot express it. TEXT: null where it is NULL. MADE: by a function. */
enum record_kind { RECORD_INT, RECORD_INT64, RECORD_NUMBER, RECORD_BOOL, RECORD_TEXT, RECORD_MADE };

struct record_field {
    const char *key; /* NULL: the end of the table */
    enum record_kind kind;
    size_t offset;
    json_t *(*make)(const void *record); /* of MADE: a new value; NULL: out of memory */
};

#define RECORD_KIND(type, member)                                                                                                \
    _Generic(((type *)0)->member, int : RECORD_INT, int64_t : RECORD_INT64, double : RECORD_NUMBER, bool : RECORD_BOOL,          \
             const char * : RECORD_TEXT)

#define RECORD_AS(name, type, member)                                                                                            \
    {                                                                                                                            \
        .key = name, .kind = RECORD_KIND(type, member), .offset = offsetof(type, member)                                         \
    }
#define RECORD(type, member) RECORD_AS(#member, type, member)
#define RECORD_MADE(name, function)                                                                                              \
    {                                                                                                                            \
        .key = name, .kind = RECORD_MADE, .make = function                                                                       \
    }

/* A new object; NULL: out of memory, or a text that is not UTF-8. */
json_t *record_json(const struct record_field *fields, const void *record);

#endif
