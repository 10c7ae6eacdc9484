/* The files of a cache of tokens, and the log that says how much of them is whole. */
#ifndef DATA_TOKEN_LOG_H
#define DATA_TOKEN_LOG_H

#include "data/token_cache.h"

struct token_files {
    const char *tokens, *rows, *skipped, *log, *lock; /* paths, in the arena */
};

enum status token_files_name(struct token_files *files, struct arena *arena, const char *dir);
enum status token_files_sync(const struct token_files *files);

/* Appends a block and updates *totals; a NULL block says that nothing follows. */
enum status token_log_append(const struct token_files *files, struct digest key, const struct token_block *block,
                             const struct source_position *next, struct token_totals *totals);

struct token_log_state {
    struct token_totals totals; /* up to the last whole block */
    int64_t blocks;             /* whole blocks */
    bool complete;              /* the last block was the end, and the files have nothing beyond it */
    const char *damage;         /* what is wrong, if the log says that it was complete or no block is whole; or NULL */
};

/* Reads the log and compares the rows, and if `deep` or the tokens are few the tokens too, with its hashes. Rows are those of
 * `sources` files. No files: nothing is whole. */
enum status token_log_check(const struct token_files *files, struct digest key, int64_t sources, bool deep,
                            struct token_log_state *state);

/* Cuts off what is after the last whole block. */
enum status token_log_cut(const struct token_files *files, const struct token_log_state *state);

#endif
