/* Data sets: rows of tokens with their targets, in files of a cache that are mapped.
 *
 * The idea: what is encoded is written to disk as it is made and only mapped afterwards, so that memory does not grow with the
 * data. A row that cannot be used is an error, or skipped if that was asked for; a row that is too long is an error, cut, split
 * or dropped. Whatever happens to a row is counted in the summary.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/table.h"
#include "data/row.h"
#include "data/source.h"
#include "data/token_cache.h"

enum data_excess { EXCESS_ERROR, EXCESS_TRUNCATE, EXCESS_SPLIT, EXCESS_DROP };

/* What happened to the rows of the files. */
struct data_summary {
    int64_t rows;             /* those that could be read */
    int64_t kinds[ROW_KINDS]; /* rows of each kind */
    int64_t skipped;          /* rows that cannot be used */
    int64_t longest;          /* tokens of the longest row as it was read, and where it is */
    int64_t longest_file, longest_line;
    int64_t long_rows;                          /* longer than the limit: */
    int64_t truncated, split, windows, dropped; /* rows; the windows that split ones gave */
    int64_t lost_tokens;                        /* cut off or dropped */
    int64_t emptied;                            /* cut rows, or windows, that were left out: no target was left in them */
    int64_t untrained;                          /* rows of this data set without a target */
    int64_t without_template;                   /* rows read that are trained as plain text, by a model with a chat template */
};

struct data_file {
    char *path;
    double weight; /* how often an epoch takes each of its rows */
    int64_t end;   /* its rows end before this one; they begin where those of the previous file end */
    bool hashed;
    struct digest digest; /* of its bytes as they were read, if hashed */
};

struct data {
    const int32_t *marked; /* tokens: TOKEN_ID is the id, TOKEN_TRAINED whether it is a target */
    const struct token_row *rows;
    int64_t row_count;
    int64_t tokens, trained, longest; /* of these rows */
    int64_t max_tokens;               /* the limit for a row, as asked for */
    bool is_window;                   /* or the model's window, where nobody did */
    struct data_file *files;
    int64_t file_count;
    struct data_summary summary;
    char *skipped; /* the first rows that were skipped, a line each: place and cause. NULL: none */

    /* The storage of rows and tokens. A part of another data set has at most a table of rows. */
    struct token_cache cache;
    struct table own_rows;
    struct table own_tokens; /* where there is no cache */
    const char *table_dir;   /* where tables may be: base/table.h */
    int64_t used;            /* bytes of tokens since pages were last released */
    bool held_back;          /* from another data set, whose summary has what was read and lost */
};

struct data_limits {
    int64_t max_tokens;      /* of a row */
    bool is_window;          /* which is the model's window: nobody asked for it */
    enum data_excess excess; /* what happens to longer ones */
    bool skip_bad;           /* rows that cannot be used are skipped, not an error */
    int64_t vocabulary;      /* the model's; an id beyond it is an error */
    bool all_tokens;         /* every token is a target, not only the assistants' */
    bool raw;                /* strings of prompts and answers are one text, without the chat template */
    const char *split;       /* which files of a directory: "train", "valid" or "test" */
    const char *columns;     /* which columns are which keys (data/columns.h); NULL: those that are called so */
    const char *model_dir;   /* for its tokenizer and template; may be NULL if a chat is given and there is no cache */
    const char *cache_dir;   /* NULL: no cache, the files are temporary */
    int64_t moment;          /* that a template is given if it asks for the date (clock_moment); 0: each row's own */
};

/* ERR_DATA if an id is not in the model's vocabulary. */
enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary);

/* Takes the files that `paths` names (data/source.h) from the cache, or encodes them into it, on all cores and with the same
 * result for any number of cores; if a run was ended while encoding, the next one resumes after its last whole block. Only
 * encoding needs *chat: if it is NULL, it is then opened from model_dir. The caller closes it, also after an error. ERR_DATA if
 * there are no rows, or no token to train. */
enum status data_open(struct data *data, const char *paths, struct chat **chat, const struct data_limits *limits);
void data_close(struct data *data);

/* Rows of this many tokens each, drawn by the seed, all of them targets: for measurements. */
enum status data_make_up(struct data *data, int64_t rows, int64_t length, int64_t vocabulary, uint64_t seed);

/* Called before a row's tokens are used: ERR_DATA if they are not what was written. Now and then it releases pages, as below. */
enum status data_use(struct data *data, int64_t row);

/* After a walk over many rows: what is only mapped no longer counts as this process's memory. Nothing becomes invalid. */
void data_rest(const struct data *data);

/* ERR_IO if a file of the cache was changed since it was opened: what was computed with it must not be kept. */
enum status data_check_files(const struct data *data);

/* The path of a row's file. */
const char *data_file_of(const struct data *data, int64_t row);

/* Whether data_split takes this size of some number of rows. */
enum status data_check_split(double size);

/* Moves rows to `held`, which is closed before `data`: below 1 a fraction of the rows, rounded but at least one, otherwise that
 * many. The seed decides which; both keep the order of the files. On an error `data` is as it was. */
enum status data_split(struct data *data, struct data *held, double size, uint64_t seed);

/* Keeps the first so many rows of each file. On an error `data` is as it was. */
enum status data_head(struct data *data, int64_t rows);

#endif
