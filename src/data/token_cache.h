/* The cache of encoded data sets: a directory each, <cache_dir>/tokens/<32 hexadecimal digits>, with
 *
 *     tokens    int32 each: the id, and the sign bit where the token is a target
 *     rows      struct token_row each
 *     skipped   the first rows that could not be used, a line each: number of the file, line, cause
 *     log       a record for each block of rows: what there was after it, and the hashes of what it added
 *     lock      exclusive for the process that writes or removes the directory, shared for readers; its time is the last use
 *
 * The idea: blocks are appended, the log last, so that after a crash everything up to the last whole record is right, and the
 * rest is cut off. The name is a hash of all that decides the content: a directory is either right or never found. It is called
 * NAME.part until it is complete. Only this machine reads it again: numbers are in its byte order. It is as private as the data:
 * only its owner can look into it.
 *
 * Opening checks the log, the table of rows, and of a small cache the tokens. Those of a large one are checked row by row as
 * they are used (token_row_sound), because reading all of them would take longer than many a run. A cache never stops a run: a
 * damaged one is logged and written again; if nothing can be written or locked, a temporary directory is used. Only the disk can:
 * tokens are mapped when they are used, and a sector of a large cache that cannot be read then ends the run. A cache that was not
 * used for 30 days is removed when another one is written; what hone did not make stays.
 */
#ifndef DATA_TOKEN_CACHE_H
#define DATA_TOKEN_CACHE_H

#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "data/source.h"

#define TOKEN_MARK INT32_MIN
#define TOKEN_ID(token) ((token)&INT32_MAX)
#define TOKEN_TRAINED(token) ((token) < 0)

struct token_row {
    int64_t begin; /* its first token */
    int64_t line;
    int32_t count, trained; /* tokens; how many of them are targets; the first never is */
    int32_t file;
    uint32_t check; /* of its tokens */
};

enum { TOKEN_KINDS = 8, TOKEN_FINDINGS = 8 }; /* at least the number of kinds of rows, and of checks */

/* The totals up to a block's end. */
struct token_totals {
    struct source_position next;              /* where the block after it begins */
    int64_t rows, tokens, trained, untrained; /* untrained: rows without a target */
    int64_t longest, longest_row;
    int64_t skipped, skipped_bytes; /* rows; of the list of the first of them */
    int64_t kinds[TOKEN_KINDS];
    int64_t findings[TOKEN_FINDINGS]; /* rows in which a check found something */
};

/* Rows on their way to the files. Starts as {0}. */
struct token_block {
    int32_t *tokens;
    struct token_row *rows;
    int64_t token_count, token_capacity, row_count, row_capacity;
    int64_t kinds[TOKEN_KINDS], findings[TOKEN_FINDINGS], skipped;
    struct buffer list; /* of what was skipped */
};

void token_block_clear(struct token_block *block); /* empty, its memory kept */
void token_block_free(struct token_block *block);

/* Adds a row: `mask` says which tokens are targets; NULL means all but the first. `found` has a bit for each finding. */
enum status token_block_add(struct token_block *block, const int32_t *ids, const uint8_t *mask, int64_t count, int64_t file,
                            int64_t line, int kind, unsigned found);
enum status token_block_skip(struct token_block *block, int64_t file, int64_t line, const char *cause);
enum status token_block_join(struct token_block *block, struct token_block *more); /* what `more` holds after it is not said */

/* The checksum of a row's tokens, and whether they are what was written. */
uint32_t token_row_check(const int32_t *tokens, int64_t count);
bool token_row_sound(const struct token_row *row, const int32_t *tokens);

/* A cache, complete or being written. */
struct token_cache {
    struct arena arena;
    const char *tokens_dir, *path; /* <cache_dir>/tokens; of the complete cache. NULL: a temporary one */
    const char *dir;               /* where the files are now */
    struct digest key, chat;       /* chat: what the key has of the tokenizer's and template's files */
    int64_t sources;               /* files of the data */
    struct lock lock;
    bool open, complete;
    bool failed;  /* its own files could not be written or read */
    bool refused; /* the data would give far more than it has: nothing of it is kept */
    struct token_totals totals;
    struct file_map token_map, row_map; /* once complete */
};

struct token_key {
    const char *model_dir;
    bool all_tokens, raw;
    int64_t vocabulary;
    const char *columns; /* NULL: by their names */
    int64_t moment;      /* see data.h */
};

/* Finds the cache of a source's files. If it is complete its files are mapped; else it is locked, after waiting for another
 * process that may be writing it, and the totals count its whole blocks: source_seek to totals.next. */
enum status token_cache_open(struct token_cache *cache, struct source *source, const char *cache_dir,
                             const struct token_key *key);

/* The same in a temporary directory, which is removed once the cache is complete and mapped. */
enum status token_cache_open_temporary(struct token_cache *cache);

/* Its blocks turned out to be of another text: it is empty again. */
enum status token_cache_restart(struct token_cache *cache);

enum status token_cache_append(struct token_cache *cache, struct token_block *block, const struct source_position *next);

/* Nothing follows: makes it durable, gives it its name, maps its files. */
enum status token_cache_finish(struct token_cache *cache);

/* The list of skipped rows as it is in the file: "NUMBER:LINE: CAUSE" each. */
enum status token_cache_skipped(const struct token_cache *cache, struct buffer *list);

/* A row was found damaged: the next process that opens the cache writes it again. */
void token_cache_spoil(const struct token_cache *cache);

/* An incomplete cache stays for the next run, unless it is empty or the data was refused. */
void token_cache_close(struct token_cache *cache);

#endif
