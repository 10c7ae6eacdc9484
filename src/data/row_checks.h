/* What can be wrong with rows that encode well: checks of each row, and their sum over a data set.
 *
 *     TRY(checker_open(&checker, chat));
 *     check_row(checker, text, length, kind, &row, &result);          on any thread
 *     TRY(check_add(&summary, &result, &place));                      in the order of the rows
 *     TRY(check_verdict(&summary));                                   the reason to stop a run, if there is one
 */
#ifndef DATA_ROW_CHECKS_H
#define DATA_ROW_CHECKS_H

#include "data/row.h"

enum check {
    CHECK_UNTRAINED,   /* no trained token */
    CHECK_DOUBLE_BOS,  /* the row begins with the same special token twice */
    CHECK_END,         /* the last trained token does not end the turn: the model would not learn to stop */
    CHECK_SPECIAL,     /* the text of a message spells a special token */
    CHECK_NO_TEMPLATE, /* plain text, which hone chat never asks for: it goes through the chat template */
    CHECK_DUPLICATE,   /* the same tokens, with the same targets, as a row before */
    CHECK_LONG,        /* more tokens than the summary's limit */
    CHECKS
};

/* Never written to once open: any number of threads may check with it. */
struct checker;

enum status checker_open(struct checker **out, const struct chat *chat); /* the chat must outlive it */
void checker_close(struct checker *checker);                             /* NULL is fine */

/* What is kept for a row. */
struct check_result {
    unsigned found; /* bits, 1 << one of enum check; never CHECK_DUPLICATE or CHECK_LONG, which one row cannot show */
    uint64_t key;   /* tells rows apart: a hash of their ids and mask */
    int64_t tokens, trained;
};

/* The findings of a row that row_encode gave. `text` is the row's JSON. */
unsigned check_find(const struct checker *checker, const char *text, int64_t length, enum row_kind kind,
                    const struct chat_row *row);

/* The same with what a summary needs of the row. */
void check_row(const struct checker *checker, const char *text, int64_t length, enum row_kind kind, const struct chat_row *row,
               struct check_result *result);

struct check_place {
    int64_t row, file, line; /* row: its number in the data set, from 1 */
};

/* Starts as {0}, or with a limit for the tokens of a row. */
struct check_summary {
    int64_t max_tokens; /* 0: none */
    bool long_stops;    /* a longer row stops a run: nothing was said of what becomes of it */
    int64_t rows, tokens, trained;
    int64_t count[CHECKS];            /* rows with the finding */
    struct check_place first[CHECKS]; /* the first of them */

    /* Keys of rows, in a table that stays small: once it is full only every second key is kept, then every fourth, and so on, and
     * the number of duplicates becomes an estimate. */
    uint64_t *keys;
    int64_t key_count, key_capacity;
    int level;
};

enum status check_add(struct check_summary *summary, const struct check_result *result, const struct check_place *place);
void check_free(struct check_summary *summary);

const char *check_name(enum check check);                                /* "end-of-turn not trained" */
const char *check_advice(enum check check);                              /* what it means and what to do */
bool check_exact(const struct check_summary *summary, enum check check); /* false: the count is an estimate */

/* Whether this finding stops a run: no trained token in any row, two BOS, or a row that is too long. The others are worth a
 * warning. */
bool check_stops(const struct check_summary *summary, enum check check);

/* ERR_DATA with the reason where one of them stops a run. */
enum status check_verdict(const struct check_summary *summary);

#endif
