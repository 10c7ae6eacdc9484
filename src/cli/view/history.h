/* A run as its output directory tells it: run.json, metrics.jsonl as far as it is written, and the lock.
 *
 * Nothing here is trusted: files may be missing, cut off, of another version, or written by anyone. A line that is no JSON object
 * is counted and passed over. A line whose step is not after the ones before it begins again there, as a resumed run does.
 */
#ifndef CLI_VIEW_HISTORY_H
#define CLI_VIEW_HISTORY_H

#include "base/json.h"
#include "base/memory.h"

struct history_step {
    int64_t step;
    double epoch, loss, norm, rate, tokens_per_second, seconds, engine_share; /* NAN: the line does not say */
};

struct history_eval {
    int64_t step;
    double loss, seconds;
};

struct history_sample {
    int64_t step;
    const char *prompt, *text;
    double seconds;
};

/* RUNNING: a process holds the lock. KILLED: none does, and the last one did not say how it ended. UNKNOWN: the file system has
 * no locks, and the last one did not say. */
enum history_state { HISTORY_RUNNING, HISTORY_FINISHED, HISTORY_STOPPED, HISTORY_FAILED, HISTORY_KILLED, HISTORY_UNKNOWN };

struct history {
    const char *dir;
    char metrics[4096], run_file[4096], lock[4096];
    json_t *run;    /* run.json; NULL: there is none */
    json_t *header; /* the last one of the metrics; NULL: none yet */
    struct history_step *steps;
    struct history_eval *evals;
    struct history_sample *samples;
    int64_t step_count, eval_count, sample_count, step_room, eval_room, sample_room;
    int64_t total;            /* steps of the whole run; 0: not known */
    int64_t resumes;          /* headers after the first */
    int64_t bad_lines;        /* that were passed over */
    int64_t skipped, flagged; /* steps that were not applied, and those that the guard found */
    int64_t read;             /* bytes of the metrics so far */
    int64_t result_step;      /* the step whose weights are the result; 0: none, or not known */
    bool early;               /* early stopping ended it */
    enum history_state state;
    const char *why; /* of a run that failed; in `run` */
    long pid;        /* of RUNNING, if known */
    struct arena arena;
};

/* ERR_IO or ERR_ARGUMENT, and what to do, if the directory is not there or no run was ever there. */
enum status history_open(struct history *h, const char *dir);
void history_close(struct history *h);

/* Reads what was added since. */
enum status history_update(struct history *h);

/* The word for a state. */
const char *history_state_name(enum history_state state);

/* The last piece of run.json, or NULL. */
const json_t *history_piece(const struct history *h);

/* The peak of the memory of all processes that made steps and said it; 0: none did. */
int64_t history_peak(const struct history *h);

/* The best validation; NULL: there was none. */
const struct history_eval *history_best(const struct history *h);

/* A whole number that run.json or the header has; 0 if it is missing or negative. */
int64_t history_number(const struct history *h, const char *key);

/* A text of them, or "". */
const char *history_text(const struct history *h, const char *key);

#endif
