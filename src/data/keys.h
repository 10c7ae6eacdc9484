/* The kinds of rows, and the keys that rows may have. */
#ifndef DATA_KEYS_H
#define DATA_KEYS_H

#include <stdbool.h>
#include <stdint.h>

enum row_kind { ROW_MESSAGES, ROW_PROMPT, ROW_TEXT, ROW_ALPACA, ROW_SHAREGPT, ROW_PREFERENCE, ROW_PAIR, ROW_KINDS };

enum { KIND_KEYS = 2 };

/* The keys of a kind: all of them must be present. The second may be NULL. */
extern const struct row_kind_keys {
    const char *name;
    const char *key[KIND_KEYS];
} row_kinds[ROW_KINDS];

/* The keys that rows of any kind may have, those that are not needed among them; NULL after the last. */
const char *row_key_name(int number);
bool row_key_known(const char *name, int64_t length);

/* Whether rows of this kind have a use for the key. */
bool row_kind_reads(enum row_kind kind, const char *key);

#endif
