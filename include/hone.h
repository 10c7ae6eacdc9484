/* libhone: fine-tuning of large language models. The only public header.
 *
 * Every function that can fail returns a hone_status; hone_error() then says what went wrong, where, and what to do. Handles
 * are independent of each other: each is used by one thread at a time, and different threads may use different handles at once.
 * What a function creates is released by the matching _destroy or _close; NULL is fine there. The library never prints, exits or
 * aborts: messages go to the sink that hone_set_log sets.
 *
 *     hone_options *options;
 *     hone_model *model;
 *     hone_options_create(&options, "eval");
 *     hone_options_set(options, "model", "path/to/model");
 *     hone_options_set(options, "data", "chats.jsonl");
 *     hone_eval_result result = {.size = sizeof result};
 *     if (hone_model_open(&model, options) == HONE_OK && hone_eval(model, NULL, NULL, &result) == HONE_OK)
 *         printf("loss %f\n", result.loss);
 *     hone_model_close(model);
 *     hone_options_destroy(options);
 */
#ifndef HONE_H
#define HONE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HONE_API __attribute__((visibility("default")))

typedef enum hone_status {
    HONE_OK = 0,
    HONE_ERR_INTERNAL = 1,              /* a bug in hone */
    HONE_ERR_ARGUMENT = 2,              /* a wrong option or argument */
    HONE_ERR_IO = 3,                    /* a file cannot be read or written */
    HONE_ERR_FORMAT = 4,                /* a file's content is broken */
    HONE_ERR_MEMORY = 5,                /* out of memory */
    HONE_ERR_DEVICE = 6,                /* no usable device */
    HONE_ERR_UNSUPPORTED = 7,           /* valid, but not supported */
    HONE_ERR_LIMIT = 8,                 /* a budget ran out */
    HONE_ERR_DATA = 9,                  /* the data cannot be used */
    HONE_ERR_STOPPED = 10,              /* stopped on request */
} hone_status;

HONE_API const char *hone_version(void);
HONE_API const char *hone_error(void);                          /* of this thread's last failure; never NULL */
HONE_API const char *hone_status_text(hone_status status);

typedef enum hone_log_level { HONE_LOG_DEBUG, HONE_LOG_INFO, HONE_LOG_WARNING } hone_log_level;
typedef void (*hone_log_sink)(void *context, hone_log_level level, const char *message);
HONE_API void hone_set_log(hone_log_sink sink, void *context);  /* for the whole process, before other threads use it */

/* --- options: the same names as the flags of `hone COMMAND` and the keys of its YAML files (docs/options.md) --------------- */

typedef struct hone_options hone_options;

HONE_API hone_status hone_options_create(hone_options **out, const char *command);         /* all at their defaults */
HONE_API void hone_options_destroy(hone_options *options);
HONE_API hone_status hone_options_set(hone_options *options, const char *key, const char *value);
HONE_API hone_status hone_options_load(hone_options *options, const char *yaml_path);
HONE_API hone_status hone_options_parse(hone_options *options, int argc, char **argv);     /* what follows `hone COMMAND` */

/* An option's value as text, "" where there is none. It belongs to the options and holds until the next call with this key. */
HONE_API hone_status hone_options_get(hone_options *options, const char *key, const char **value);

/* --- models ------------------------------------------------------------------------------------------------------------ */

typedef struct hone_model hone_model;

/* Opens the model that the options name, with its tokenizer and chat template. The options are copied. */
HONE_API hone_status hone_model_open(hone_model **out, const hone_options *options);
HONE_API void hone_model_close(hone_model *model);

/* Results begin with their size, which the caller sets: a program and a library of different versions understand each other. */
typedef struct hone_eval_result {
    size_t size;
    double loss, perplexity;            /* over the trained tokens */
    int64_t rows, tokens, trained_tokens;
    double startup_seconds;             /* from the process's start to the first program's start */
    double seconds;                     /* of the programs */
    int64_t planned_bytes;              /* what `hone plan` says for the device's blocks */
    int64_t allocated_bytes;            /* what was allocated; mapped files not among them */
    int64_t mapped_bytes;
    int64_t peak_bytes;                 /* planned for the whole process */
    int64_t peak_rss_bytes;             /* measured */
    char dtype[16], device[16];
} hone_eval_result;

/* Told after every micro-batch; return 0 to go on, anything else to stop with HONE_ERR_STOPPED. */
typedef int (*hone_progress)(void *context, int64_t batches_done, int64_t batches, int64_t tokens_done, double seconds);

/* The loss over the file that the option data names. `progress` may be NULL. */
HONE_API hone_status hone_eval(hone_model *model, hone_progress progress, void *context, hone_eval_result *result);

typedef struct hone_generate_result {
    size_t size;
    int64_t prompt_tokens, new_tokens;
    int ended;                          /* the model ended its answer itself */
    double startup_seconds, prefill_seconds, decode_seconds;
} hone_generate_result;

/* Gets whole characters of the answer as they are made; return 0 to go on. */
typedef int (*hone_text_sink)(void *context, const char *text, size_t length);

/* Answers the option prompt. */
HONE_API hone_status hone_generate(hone_model *model, hone_text_sink sink, void *context, hone_generate_result *result);

/* --- reports: JSON objects as text, to be released with hone_text_destroy -------------------------------------------------- */

HONE_API void hone_text_destroy(char *text);

/* The memory that a run with these options will take, to the byte, from config.json alone. */
HONE_API hone_status hone_plan(const hone_options *options, char **json);

/* What a model directory holds. */
HONE_API hone_status hone_inspect_model(const hone_options *options, char **json);

/* The devices of this machine, and what was not found. */
HONE_API hone_status hone_devices(const hone_options *options, char **json);

#ifdef __cplusplus
}
#endif

#endif
