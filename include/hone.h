/* libhone: fine-tuning of large language models. The only public header.
 *
 * Every function that can fail returns a hone_status; hone_error() then says what went wrong, where, and what to do. What a
 * function creates is released by the matching _destroy or _close, which accept NULL. The library never prints, exits or aborts:
 * messages go to the sink that hone_set_log sets.
 *
 * Arguments. Every one is checked: a wrong one is a status and a message, never a crash. A pointer may be NULL where this file
 * says so, and nowhere else; `context` may always be NULL, and so may an array whose count is 0. Handles (options, models,
 * trainers) are looked up: one that was released, or is of another kind, is HONE_ERR_ARGUMENT. They are numbers in place of
 * pointers, and none is given twice in a process.
 *
 * Callbacks. They run on the thread that made the call. Inside one, a call with the same handle is HONE_ERR_ARGUMENT, except for
 * those that hone_events names; a handle that is released there lives until the call returns. Other handles can be used.
 *
 * Threads. Handles are independent of each other: each is used by one thread at a time, and different threads may use different
 * handles at once. What models and trainers on one base share, its frozen weights (docs/library.md), changes nothing about that.
 * The library computes with a pool of its own threads, one for the process, as many as the option threads says or as the process
 * may use. OpenMP: oneDNN is linked to it, but hone runs each of its pieces with one thread, and puts back the
 * number of threads that the caller has set (omp_set_num_threads); OpenMP's own threads are never started.
 *
 * fork. A child may use the library, with handles that it opens itself; those of its parent are HONE_ERR_ARGUMENT there, and
 * releasing them does nothing. A child of a process that has used a GPU cannot use the GPU: the drivers do not permit it.
 *
 * A thread that is inside libhone computes, and the code of its matmuls keeps data below the end of the stack. A signal handler
 * must not run there: block signals in that thread, or give it an alternate stack (sigaltstack) and install handlers with
 * SA_ONSTACK. The threads that the library makes have signals blocked (docs/reliability.md).
 *
 *     hone_options *options;
 *     hone_trainer *trainer;
 *     hone_options_create(&options, "train");
 *     hone_options_set(options, "model", "path/to/model");
 *     hone_options_set(options, "data", "chats.jsonl");
 *     hone_options_set(options, "output", "adapter");
 *     hone_train_result result = {.size = sizeof result};
 *     if (hone_trainer_open(&trainer, options, 0) == HONE_OK && hone_train(trainer, NULL, NULL, &result) == HONE_OK)
 *         printf("loss %f after %lld steps\n", result.loss, (long long)result.steps);
 *     else
 *         puts(hone_error());
 *     hone_trainer_close(trainer);
 *     hone_options_destroy(options);
 *
 * examples/embed.c tokenizes a chat, trains on it with a loss of its own, and samples; docs/library.md explains it.
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
    HONE_ERR_INTERNAL = 1,    /* a bug in hone */
    HONE_ERR_ARGUMENT = 2,    /* a wrong option or argument */
    HONE_ERR_IO = 3,          /* a file cannot be read or written */
    HONE_ERR_FORMAT = 4,      /* a file's content is broken */
    HONE_ERR_MEMORY = 5,      /* out of memory */
    HONE_ERR_DEVICE = 6,      /* no usable device */
    HONE_ERR_UNSUPPORTED = 7, /* valid, but not supported */
    HONE_ERR_LIMIT = 8,       /* a budget ran out */
    HONE_ERR_DATA = 9,        /* the data cannot be used */
    HONE_ERR_STOPPED = 10,    /* stopped on request */
    HONE_ERR_COMPUTE = 11,    /* a computation gave two results */
    HONE_ERR_RANK = 12,       /* another process of the run is gone */
} hone_status;

HONE_API const char *hone_version(void);

/* The rank of this process among those of its run, as its launcher says (mpirun, srun, torchrun's variables); 0 for a single
 * process. Trainers of all ranks train together: each call that trains, validates, saves or loads is made by all of them, in the
 * same order. Only rank 0 writes files. */
HONE_API int hone_rank(void);
HONE_API int hone_ranks(void);         /* how many there are; 1 for a single process */
HONE_API const char *hone_error(void); /* of this thread's last failure; never NULL */
HONE_API const char *hone_status_text(hone_status status);

typedef enum hone_log_level { HONE_LOG_DEBUG, HONE_LOG_INFO, HONE_LOG_WARNING } hone_log_level;
typedef void (*hone_log_sink)(void *context, hone_log_level level, const char *message);
HONE_API void hone_set_log(hone_log_sink sink, void *context); /* for the whole process, before other threads use it */

/* Return 0 to continue. hone_merge, hone_quantize and hone_export ask for every few million weights whether to stop: they then
 * remove what they have written and return HONE_ERR_STOPPED. */
typedef int (*hone_stop)(void *context);
HONE_API void hone_set_stop(hone_stop asked, void *context); /* for the whole process, before other threads use it */

/* --- options: the same names as the flags of `hone COMMAND` and the keys of its YAML files (docs/options.md) --------------- */
typedef struct hone_options hone_options;

HONE_API hone_status hone_options_create(hone_options **out, const char *command); /* all at their defaults */
HONE_API void hone_options_destroy(hone_options *options);
HONE_API hone_status hone_options_set(hone_options *options, const char *key, const char *value); /* NULL: its default again */
HONE_API hone_status hone_options_load(hone_options *options,
                                       const char *yaml_path); /* hone's, or another tool's: docs/configs.md */
HONE_API hone_status hone_options_parse(hone_options *options, int argc, char **argv); /* the arguments after `hone COMMAND` */

/* The options that were set, as a YAML file that hone_options_load reads as the same, with comments on where each came from. To
 * be released with hone_text_destroy. */
HONE_API hone_status hone_options_write(const hone_options *options, char **yaml);
/* The same as a JSON object: "options" by name, "sources" with where each came from, "notes". */
HONE_API hone_status hone_options_json(const hone_options *options, char **json);

/* Confines this process to what a command with these options needs, for good: before it opens a model or data that others made,
 * and before it has other threads, for it holds for this thread and those that it makes. Files that the options do not name, the
 * programs of this machine and the network are then refused by the system (docs/confinement.md). `refused` is called with the
 * name of a system call that was refused, inside a signal handler; it may be NULL. Directories that the command would make are
 * made now: "made" of the report, to be released with hone_text_destroy, lists them, the last one first. */
HONE_API hone_status hone_confine(const hone_options *options, void (*refused)(const char *call), char **json);

/* An option's value as text, "" if it has none. It belongs to the options and is valid until the next call with this key. */
HONE_API hone_status hone_options_get(hone_options *options, const char *key, const char **value);

/* --- models ------------------------------------------------------------------------------------------------------------ */
typedef struct hone_model hone_model;

/* Opens the model that the options name, with its tokenizer and chat template. The options are copied. */
HONE_API hone_status hone_model_open(hone_model **out, const hone_options *options);
HONE_API void hone_model_close(hone_model *model);

/* Structs begin with their size, which the caller sets: a program and a library of different versions understand each other
 * (docs/release.md). Of a result, members that this library does not know become 0; of what the caller fills, they must be 0, or
 * the call is HONE_ERR_UNSUPPORTED. What is 0 or NULL there has its default, but in hone_optim. Texts in results are valid as
 * long as the handle. */
typedef struct hone_eval_result {
    size_t size;
    double loss, perplexity; /* over the trained tokens */
    int64_t rows, tokens, trained_tokens;
    double startup_seconds;  /* from the process's start to the first program's start */
    double seconds;          /* of the programs */
    int64_t planned_bytes;   /* what `hone plan` says for the device's blocks */
    int64_t allocated_bytes; /* what was allocated, without mapped files */
    int64_t mapped_bytes;
    int64_t peak_bytes;     /* planned for the whole process */
    int64_t peak_rss_bytes; /* measured */
    const char *dtype, *device;
    int64_t shared_bytes; /* of planned_bytes and mapped_bytes: frozen weights of the base, which the process has once, however
                           * many models and trainers use them (docs/library.md) */
} hone_eval_result;

/* Called after every micro-batch; return 0 to continue, anything else to stop with HONE_ERR_STOPPED. */
typedef int (*hone_progress)(void *context, int64_t batches_done, int64_t batches, int64_t tokens_done, double seconds);

/* Reads or encodes the data that the option data names and says what was used of it and what was not: a JSON object, to be
 * released with hone_text_destroy. hone_eval does the same if this was not called before. */
HONE_API hone_status hone_eval_data(hone_model *model, char **json);

/* The loss over the data that the option data names. `progress` may be NULL. */
HONE_API hone_status hone_eval(hone_model *model, hone_progress progress, void *context, hone_eval_result *result);

typedef struct hone_generate_result {
    size_t size;
    int64_t prompt_tokens, new_tokens;
    int ended; /* the model ended its answer itself, or a stop token or text did */
    double startup_seconds, prefill_seconds, decode_seconds;
    int64_t reused_tokens; /* of the prompt: those that the model still knew from the call before */
} hone_generate_result;

/* A token as a sink gets it, which returns 0 to continue. Its text is what is certain now: whole characters, so often none, and
 * none that may begin a stop text; no zero byte ends it. Tokens of the prompt have none, nor has the one that ends the answer. A
 * last call with id -1 brings what is left. Log-probabilities are those of hone_logprobs, whatever decides what is drawn. */
typedef struct hone_token {
    size_t size;
    int32_t id, of_prompt;
    double logprob;
    const char *text;
    size_t length;
    const int32_t *top_ids; /* the most likely tokens in its place, as many as were asked for, and theirs */
    const double *top_logprobs;
    int64_t top_count;
} hone_token;
typedef int (*hone_token_sink)(void *context, const hone_token *token);

/* Answers the prompt of the option prompt. `sink` may be NULL; it gets log-probabilities with the option logprobs, else 0. */
HONE_API hone_status hone_generate(hone_model *model, hone_token_sink sink, void *context, hone_generate_result *result);

/* --- tokens ------------------------------------------------------------------------------------------------------------ */
/* A sequence of tokens, as the library makes it. weights[i] is the weight of the loss of ids[i], predicted from the tokens before
 * it; weights[0] is not used, and NULL means 1 for all others. hone_datum takes both arrays as they are. */
typedef struct hone_sequence {
    const int32_t *ids;
    const float *weights;
    int64_t count;
} hone_sequence;

HONE_API void hone_sequence_destroy(hone_sequence *sequence); /* one that hone_tokenize or hone_encode_chat made */

/* The tokens of a text of `length` bytes, without weights. Special tokens in it are recognised. HONE_TOKENIZE_SPECIAL: also those
 * that the tokenizer puts before and after a text, as add_special_tokens=True of Hugging Face's does. This and the next two read
 * the model's tokenizer and no weights. */
enum { HONE_TOKENIZE_SPECIAL = 1 };
HONE_API hone_status hone_tokenize(hone_model *model, const char *text, size_t length, unsigned flags, hone_sequence **sequence);

/* The text of tokens, to be released with hone_text_destroy; what is not whole UTF-8 becomes U+FFFD. `length` may be NULL.
 * HONE_DETOKENIZE_SPECIAL: special tokens are written too. */
enum { HONE_DETOKENIZE_SPECIAL = 1 };
HONE_API hone_status hone_detokenize(hone_model *model, const int32_t *ids, int64_t count, unsigned flags, char **text,
                                     size_t *length);

/* The tokens of a chat by the model's template: `json` is {"messages": [{"role": "user", "content": "..."}, ...]}, or any other
 * row that `hone train` takes (docs/data.md). A token's weight is 1 where `hone train` would train it, else 0. HONE_CHAT_PROMPT:
 * messages only, followed by what the template writes before an answer; all weights are 0. */
enum { HONE_CHAT_PROMPT = 1 };
HONE_API hone_status hone_encode_chat(hone_model *model, const char *json, unsigned flags, hone_sequence **sequence);

/* What is computed of a sequence of tokens, and what a loss reads of it. Element i of every array is about token i: about
 * targets[i], predicted from the tokens before ids[i]. Nothing predicts the first token, whose elements are not used. Arrays have
 * `count` elements, or are NULL. More members may follow; those that a caller's `size` leaves out are 0. */
typedef struct hone_datum {
    size_t size;
    const int32_t *ids;
    int64_t count;
    const int32_t *targets; /* NULL: the ids. To predict one after the last token, add any id */
    const float *weights;   /* of each token's loss, also below 0; NULL: 1 */
    const uint8_t *mask;    /* not 0: the token is asked about; NULL: each is whose weight is not 0. One that is asked about with
                             * weight 0 has a log-probability, and a part in what a loss computes by sequence */
    const float *old_logprobs; /* of the targets, when they were drawn, as hone_logprobs says them: at temperature 1 and top_p 1,
                                * however they were drawn. Of ppo, gspo and sapo */
    const float *advantages;   /* of the same losses */
} hone_datum;

/* The log-probability of each token after those before it, without gradients. `logprobs` has for each datum an array of as many
 * floats as it has tokens, or NULL; 0 for tokens that are not asked about. */
HONE_API hone_status hone_logprobs(hone_model *model, const hone_datum *const *data, int64_t count, float *const *logprobs);

/* How a sequence is continued (docs/library.md). Members that are 0 have the defaults named here, or change nothing. */
typedef struct hone_sampling {
    size_t size;
    int64_t max_new_tokens; /* at least 1; the answer also ends where the window is full */
    double temperature;     /* 0: always the most likely token */
    int64_t top_k;
    double top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    const int32_t *bias_tokens; /* to whose logits biases are added, -100 to 100 */
    const float *biases;
    int64_t bias_count;
    int64_t seed;               /* what is drawn depends only on it and on the position */
    const int32_t *stop_tokens; /* that end the answer, besides the model's own */
    int64_t stop_count;
    const char *const *stop_texts; /* that end it where they begin; one that is a special token is a stop token too */
    int64_t stop_text_count;
    int64_t logprobs;        /* how many of the most likely tokens the sink gets with each new one, up to 1024 */
    int64_t prompt_logprobs; /* the same with the prompt's, which are then read one by one. 0: the sink gets none of them */
} hone_sampling;
/* What the options of a model say of it. Lists and texts are valid as long as the model. */
HONE_API hone_status hone_model_sampling(hone_model *model, hone_sampling *sampling);

/* Continues a sequence of tokens. The model stays on its device for the next call, and so do the keys and values of this one: of
 * the next prompt, what begins in the same way is not computed again. A prompt that leaves no room in the model's window is
 * HONE_ERR_LIMIT. `sink` may be NULL. */
HONE_API hone_status hone_sample_tokens(hone_model *model, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                        hone_token_sink sink, void *context, hone_generate_result *result);

/* --- training ---------------------------------------------------------------------------------------------------------- */
typedef struct hone_trainer hone_trainer;

/* What a trainer will be used for besides hone_train: its programs take memory and time to prepare, and only these are prepared.
 */
typedef struct hone_trainer_uses {
    size_t size;
    int samples;               /* not 0: hone_trainer_sample and hone_trainer_sample_tokens, with the option sample_length */
    int logits;                /* not 0: hone_trainer_forward_backward_with */
    int logprobs;              /* not 0: hone_trainer_logprobs */
    int base_logprobs;         /* not 0: the same with HONE_LOGPROBS_BASE */
    const char *const *losses; /* names of those that hone_trainer_forward_backward will be given: docs/library.md lists them */
    int64_t loss_count;        /* 0: cross_entropy, which a trainer with the option data has in any case */
} hone_trainer_uses;

/* Opens a model with the data, the adapter and the optimizer that the options of `hone train` ask for. `uses` may be NULL; with
 * the options sample_prompt or sample_prompts a trainer is ready for samples too. All programs are planned and prepared, all
 * memory is allocated, and with the option resume the state is that of the checkpoint: afterwards a step allocates nothing. The
 * options data and output may be missing if hone_train is not used. */
HONE_API hone_status hone_trainer_open(hone_trainer **out, const hone_options *options, const hone_trainer_uses *uses);
HONE_API void hone_trainer_close(hone_trainer *trainer);

typedef struct hone_trainer_info {
    size_t size;
    int64_t rows, tokens, trained_tokens, longest_row; /* of the training data */
    int64_t eval_rows;
    int64_t steps, steps_per_epoch; /* of the whole run */
    int64_t step;                   /* done so far: above 0 after a resume */
    int64_t parameters, trainable_parameters;
    int64_t micro_batch_tokens, vocabulary;
    int64_t planned_bytes, allocated_bytes, mapped_bytes; /* as in hone_eval_result */
    int64_t peak_bytes, peak_rss_bytes;
    double startup_seconds;                          /* from the process's start until the trainer was ready */
    const char *method, *recompute, *dtype, *device; /* "lora" or "full"; "none", "selective" or "full" */
    const char *resumed_from;                        /* the checkpoint's path; "" without one */
    double first_eval_loss;                          /* of the run's first validation, also before a resume; NaN before it */
    int64_t disk_bytes,
        disk_free_bytes; /* what the run may add to the disk of output_dir, and what is free there; 0: not known */
    int64_t checkpoint_bytes, checkpoints; /* of disk_bytes: one checkpoint, and how many there may be besides those there now */
    int64_t rank, ranks;                   /* of this process, and how many train together */
    int64_t shared_bytes;                  /* as in hone_eval_result */
} hone_trainer_info;

HONE_API hone_status hone_trainer_get_info(hone_trainer *trainer, hone_trainer_info *info);

/* What was used of the training data and what was not, and under "eval" the same for the validation data: a JSON object, to be
 * released with hone_text_destroy. */
HONE_API hone_status hone_trainer_data(hone_trainer *trainer, char **json);

/* One of the losses that the trainer was opened for, by its name, with settings by theirs; those that are not given have their
 * defaults. docs/library.md says what each loss computes. */
typedef struct hone_setting {
    const char *name;
    double value;
    const char *text; /* NULL: no setting is a text yet */
} hone_setting;

typedef struct hone_loss {
    size_t size;
    const char *name; /* NULL: cross_entropy */
    const hone_setting *settings;
    int64_t count;
} hone_loss;

typedef struct hone_loss_sum { /* of what the call has added, also if it failed after that */
    size_t size;
    double sum;    /* of the tokens' losses times their weights */
    double weight; /* of the weights: sum / weight is the mean loss */
    int64_t tokens;
} hone_loss_sum;

/* Adds the gradients of the data's losses, each times its weight, to the sums that the next hone_trainer_optim_step divides. May
 * be called any number of times and with several losses; the data are packed into micro-batches as they fit. If one of them
 * cannot be used, none is added: it lacks what the loss reads, or has what the loss does not read (old_logprobs, advantages).
 * `loss` may be NULL: cross_entropy. `logprobs` as of hone_logprobs, of the model as it is before the step, and with the option
 * lora_dropout with what that leaves out; NULL: they are not wanted.
 *
 * Several ranks each bring data of their own, also none. With the option shard at gradients or weights they make this call
 * together, with the same loss, and one that refuses its data refuses the call on all. */
HONE_API hone_status hone_trainer_forward_backward(hone_trainer *trainer, const hone_datum *const *data, int64_t count,
                                                   const hone_loss *loss, float *const *logprobs, hone_loss_sum *sum);

/* The same with the caller's own loss: `gradient` gets the logits (rows, vocabulary) after the tokens [first, first + rows) of
 * data[datum], writes the gradient of its loss with respect to them (zeroed before the call) and adds the loss to *loss. Of a
 * datum only ids and weights are read, and those add to the sum of weights as above. Return 0 to continue; anything else stops
 * with HONE_ERR_STOPPED, and what was added before stays in the sums. */
typedef int (*hone_logits_gradient)(void *context, int64_t datum, int64_t first, int64_t rows, int64_t vocabulary,
                                    const float *logits, float *gradient, double *loss);
HONE_API hone_status hone_trainer_forward_backward_with(hone_trainer *trainer, const hone_datum *const *data, int64_t count,
                                                        hone_logits_gradient gradient, void *context, hone_loss_sum *sum);

typedef struct hone_step {
    size_t size;
    int64_t step; /* 1 for the first */
    double epoch; /* how much of the data has been used, 1.0 for all of it once */
    double loss, grad_norm, learning_rate;
    int64_t tokens, trained_tokens; /* trained: those whose weight is not 0 */
    double seconds;
    int applied;         /* 0: the loss or the gradient's norm was not finite, so nothing was changed */
    double engine_share; /* of `seconds`, what only the step's matmuls would take: no step can be faster; NaN: not known */
} hone_step;

/* How one step is taken. */
typedef struct hone_optim {
    size_t size;
    double learning_rate;
    double beta1, beta2, epsilon;
    double weight_decay;
    double max_grad_norm; /* that the gradient is clipped to; 0: it is not */
    double divisor; /* of the sums of gradients and losses of all ranks: 1, or any number above 0. 0: the sum of all weights since
                     * the last step, which is refused if one of them was below 0 */
} hone_optim;
/* Fills it with the values of the options, the schedule's learning rate of the next step, and 0 as the divisor. */
HONE_API hone_status hone_trainer_optim_defaults(hone_trainer *trainer, hone_optim *optim);

/* Divides, clips, steps the optimizer, and clears the sums. `optim` is what hone_trainer_optim_defaults filled, with the caller's
 * changes; NULL: without any. Members that its `size` leaves out have those defaults. All ranks call it with the same numbers. If
 * it is refused, the sums stay. The options verify_every and max_bad_steps are hone_train's: here a step is computed once, and
 * what is bad about it is the caller's to judge. So is sync_every: with several ranks, and with it above 1, this call and
 * hone_trainer_forward_backward are HONE_ERR_UNSUPPORTED. */
HONE_API hone_status hone_trainer_optim_step(hone_trainer *trainer, const hone_optim *optim, hone_step *step);

/* Discards the gradients and sums since the last step, as after a call that failed or was stopped. The weights and the
 * optimizer's state stay, and no step is counted. All ranks call it. */
HONE_API hone_status hone_trainer_clear_gradients(hone_trainer *trainer);

/* What is trained: a JSON array of {"name", "shape"}, to be released with hone_text_destroy. Names are those of the files that
 * hone_trainer_save writes: PEFT's for an adapter, else the model's. */
HONE_API hone_status hone_trainer_tensors(hone_trainer *trainer, char **json);

/* A trained tensor by its name: its weights, as exact as the trainer keeps them, or the sum of its gradients since the last step,
 * which nothing has divided yet (of this rank's data). `count` is the room in `values`, and becomes the tensor's number of
 * elements; with `values` NULL that is all. */
typedef enum hone_tensor_kind { HONE_TENSOR_WEIGHT, HONE_TENSOR_GRADIENT } hone_tensor_kind;
HONE_API hone_status hone_trainer_read_tensor(hone_trainer *trainer, const char *name, hone_tensor_kind kind, float *values,
                                              int64_t *count);

HONE_API hone_status hone_trainer_eval(hone_trainer *trainer, double *loss); /* the mean over the options' validation data */

/* As hone_logprobs, hone_sample_tokens and hone_generate, with the model as it is now. Data fit into a micro-batch; a prompt
 * and its answer into the option sample_length. hone_trainer_sample takes the most likely tokens, and its sink
 * gets no log-probabilities. Sinks may be NULL.
 * HONE_LOGPROBS_BASE: of the model without its adapter, to the digits of the model on its own. That needs an adapter only,
 * without the option train_norms. With the option shard at weights all ranks make these calls together, each with data of its
 * own; a prompt, what is said of sampling and what sinks return are the same on all of them. */
enum { HONE_LOGPROBS_BASE = 1 };
HONE_API hone_status hone_trainer_logprobs(hone_trainer *trainer, const hone_datum *const *data, int64_t count, unsigned flags,
                                           float *const *logprobs);
HONE_API hone_status hone_trainer_sample_tokens(hone_trainer *trainer, const int32_t *ids, int64_t count,
                                                const hone_sampling *sampling, hone_token_sink sink, void *context,
                                                hone_generate_result *result);
HONE_API hone_status hone_trainer_sample(hone_trainer *trainer, const char *prompt, int64_t max_new_tokens, hone_token_sink sink,
                                         void *context, hone_generate_result *result);

/* Writes the adapter in PEFT's layout, or the model in Hugging Face's, to a directory, which is created if missing. */
HONE_API hone_status hone_trainer_save(hone_trainer *trainer, const char *dir);

/* The whole state (the above, the optimizer, the place in the data): a run that loads it resumes as if it had not been
 * interrupted. Between steps only: gradients that were added and not yet used are no part of it. A state that is in the directory
 * is replaced, with all that is next to it; a directory with files and no state is refused.
 *
 * A state can be loaded where its arrays mean the same: the base, ranks, scales and modules, the type, the optimizer and dropout
 * are the trainer's. What is given with each step may be another (the learning rate, the losses, the data), but hone_train goes
 * on only with a state of a run with its own settings and data. Gradients that wait are forgotten. If a device fails while it
 * loads, the arrays are partly those of the state: load one again. */
HONE_API hone_status hone_trainer_save_state(hone_trainer *trainer, const char *dir);
HONE_API hone_status hone_trainer_load_state(hone_trainer *trainer, const char *dir);

/* --- slots: several adapters in one trainer, which train in turn (docs/library.md) ----------------------------------------- */
/* A slot is what another trainer on the same base would be: an adapter and its optimizer's state, gradients that wait for a step,
 * the steps done, and a seed. A trainer opens with one, slot 0. All its slots have its options but the seed, and its programs:
 * making, selecting, evicting and closing a slot prepares and compiles nothing. One slot is selected. What the functions above do
 * to a trainer, they do to that slot; hone_train is for slot 0.
 *
 * All slots share the trainer's handle, which one thread uses at a time: a server with several threads holds a lock of its own
 * around each selection and the calls that it is for. If a device fails while slots change places, and the one that was selected
 * cannot be put back either, no slot is selected: it is kept in host memory, and calls that need one are HONE_ERR_ARGUMENT until
 * hone_trainer_slot_select has put one there.
 *
 * For trainers of one process that train an adapter; others are HONE_ERR_UNSUPPORTED. */
typedef struct hone_slot_start {
    size_t size;
    const int64_t *seed; /* in place of the option seed; NULL: that */
    const char *adapter; /* a directory in PEFT's layout, whose ranks, scales and modules are the trainer's: its weights, as with
                          * the option init_adapter; NULL: as the trainer began */
} hone_slot_start;

/* Makes a slot, which is then selected. `start` may be NULL: with the trainer's seed. If it fails, there is no new slot, and the
 * selected one stays. */
HONE_API hone_status hone_trainer_slot_create(hone_trainer *trainer, const hone_slot_start *start, int64_t *slot);
/* The same from what hone_trainer_save_state has saved of a slot, or of a trainer with these options and any seed. */
HONE_API hone_status hone_trainer_slot_load(hone_trainer *trainer, const char *dir, int64_t *slot);

/* Copies the selected slot from the device to host memory, and this one from there, or from the disk if it was evicted. Gradients
 * that wait for a step go with their slot. If it fails, the selected slot stays, as far as the device can put it back. */
HONE_API hone_status hone_trainer_slot_select(hone_trainer *trainer, int64_t slot);

/* Moves a slot from host memory, or from the file that it is in, to a new file in a directory, which is made if it is missing.
 * The file has no name: nobody else can open it, it is gone when the slot is selected or closed or the process ends, and until
 * then the process has one more file open. One whose bytes have changed is HONE_ERR_FORMAT when it is selected. If the slot is
 * selected, slot 0 is then, or if that is in a file which cannot be read the first slot that can be; slot 0 itself must not be
 * selected. If it fails, the slot is where it was, and the selected one stays. */
HONE_API hone_status hone_trainer_slot_evict(hone_trainer *trainer, int64_t slot, const char *dir);

/* Forgets a slot, but never slot 0. If it is selected, another one is then as above; where none can be, no slot is selected, and
 * the log says why. Its number is not used again. */
HONE_API hone_status hone_trainer_slot_close(hone_trainer *trainer, int64_t slot);

typedef struct hone_slot_info {
    size_t size;
    int64_t slot, slots; /* its number; and how many the trainer has */
    int64_t seed, step, tokens;
    int64_t waiting;    /* sequences whose gradients wait for the next hone_trainer_optim_step */
    int64_t host_bytes; /* what it takes now in host memory, or on the disk; both are 0 while it is selected */
    int64_t disk_bytes;
    int64_t slot_bytes; /* of any slot of this trainer, as `hone plan` says, and with gradients that wait so many more: what a
                         * selection copies in each direction. 0: the trainer can have no others */
    int64_t gradient_bytes;
    int selected, reserved;
} hone_slot_info;

#define HONE_SLOT_SELECTED (-1) /* in place of a number; HONE_ERR_ARGUMENT if none is */
HONE_API hone_status hone_trainer_slot_get_info(hone_trainer *trainer, int64_t slot, hone_slot_info *info);

/* --- runs ---------------------------------------------------------------------------------------------------------------- */
typedef enum hone_event_kind {
    HONE_EVENT_START,  /* once, before the first step */
    HONE_EVENT_STEP,   /* after every step: `step` */
    HONE_EVENT_EVAL,   /* after every validation: `eval_loss`, `best` */
    HONE_EVENT_SAVE,   /* after every checkpoint: `path` */
    HONE_EVENT_WAIT,   /* while no step is made: `activity`, `done`, `total`; the run can be ended there too */
    HONE_EVENT_SAMPLE, /* after every sample: `prompt`, `answer`, `new_tokens` */
} hone_event_kind;

typedef struct hone_event {
    size_t size;
    hone_event_kind kind;
    int64_t step, steps;      /* done so far, and in all */
    double seconds;           /* since the first step of this process began */
    double tokens_per_second; /* over the last steps */
    const hone_step *last;    /* NULL before the first step */
    double eval_loss;
    int best; /* the lowest validation loss so far */
    const char *path;
    int64_t in_flight; /* steps beyond `step` that a GPU has begun: at most one, and only at HONE_EVENT_STEP */
    const char *prompt, *answer;
    int64_t new_tokens; /* of the answer */
    /* At HONE_EVENT_WAIT "validating", before the first batch and after each, "sampling", between tokens, or "saving", before a
     * checkpoint; else NULL. How many batches of the validation or tokens of the sample are done, and how many there may be. */
    const char *activity;
    int64_t done, total;
} hone_event;

/* Return 0 to continue; anything else ends the run after this event: the state is saved, and hone_train returns HONE_ERR_STOPPED.
 * A step that is running is finished first, with its own event. Calls with the trainer that can be made from here:
 * hone_trainer_get_info, _slot_get_info, _data, _tensors, _save, _eval, _logprobs, _sample and _sample_tokens, which see the
 * result of that step. */
typedef int (*hone_events)(void *context, const hone_event *event);

typedef struct hone_train_result {
    size_t size;
    int64_t steps;                    /* done, including those of earlier processes */
    double loss;                      /* of the last step */
    double eval_loss, best_eval_loss; /* NaN without validation data */
    double seconds;
    int64_t tokens, trained_tokens; /* of this process */
    int64_t skipped_steps;
    const char *output, *checkpoint, *best_checkpoint; /* paths; "" if there is none */
    int64_t best_step;  /* of the lowest validation loss; 0: none was below that of the model as it was */
    int64_t saved_step; /* whose weights are the adapter or model in `output`: `steps`, or with the option load_best_model_at_end
                         * `best_step`; 0: there is no result yet */
    int stopped_early;  /* 1: by the option early_stopping_patience */
    int reserved;
} hone_train_result;

/* The whole run: steps, validation, samples, metrics.jsonl and run.json (docs/watching.md), checkpoints, and at the end the
 * adapter or model in the option output. With the option load_best_model_at_end these are the best checkpoint's files; the
 * trainer keeps the weights of the last step. `events` may be NULL. With the option dry_run, which must be set before the trainer
 * is opened, it checks what a run would meet before its first step, and writes nothing. */
HONE_API hone_status hone_train(hone_trainer *trainer, hone_events events, void *context, hone_train_result *result);

/* --- reports: JSON objects as text, to be released with hone_text_destroy -------------------------------------------------- */
HONE_API void hone_text_destroy(char *text);

/* Return 0 to continue; anything else stops with HONE_ERR_STOPPED. `file` is the current one; bytes are of all files. */
typedef int (*hone_pull_progress)(void *context, const char *file, int64_t bytes_done, int64_t bytes);

/* Downloads the model that the option model names from the Hugging Face hub, into the hub's cache or the directory of the option
 * output; what an earlier call has left is gone on with. It is the only function that uses the network. The report says where the
 * files are. `progress` may be NULL. */
HONE_API hone_status hone_pull(const hone_options *options, hone_pull_progress progress, void *context, char **json);

/* Writes a YAML file for `hone train` to the option output (run.yaml if it is not given), which must not exist: values for the
 * options model and data that fit this machine, with the reasons as comments. The report has the values, and the text as "yaml".
 */
HONE_API hone_status hone_init(const hone_options *options, char **json);

HONE_API hone_status hone_plan(const hone_options *options, char **json);          /* the memory of a run, from config.json */
HONE_API hone_status hone_inspect_model(const hone_options *options, char **json); /* what a model directory holds */

/* The rows of the data set that the options name, as the model will see them: how many there are and of which kinds, every row
 * that cannot be used with its place and cause, what checks found, and the tokens of the first rows, or of the one that `row`
 * names. Rows that cannot be used are a part of the report, not an error. */
HONE_API hone_status hone_inspect_data(const hone_options *options, char **json);

/* What the adapter or the checkpoint in the option run_dir (or adapter) is: base, rank, modules, step, losses. No model is
 * opened. "whole" of a checkpoint, or of an adapter in one, says whether its files have their checksums; "damage" what is
 * wrong. */
HONE_API hone_status hone_inspect_adapter(const hone_options *options, char **json);
HONE_API hone_status hone_inspect_checkpoint(const hone_options *options, char **json);

/* Whether the folder in the option run_dir is what its provenance.json says: each file by its SHA-256, and none that it does not
 * name. With the options model and data also whether it was made from those, with verify_key (which hone_options_parse takes)
 * whether the record is signed by that key. HONE_OK only if all of it holds; HONE_ERR_FORMAT if not, and then *json has the
 * report too: "problems" says what is wrong. */
HONE_API hone_status hone_verify(const hone_options *options, char **json);

/* The kernels that runs of a model with these options need on CUDA, and which of them are in the cache for each target of the
 * option target: in the directory that the option output names, or where runs keep them. */
HONE_API hone_status hone_kernels_list(const hone_options *options, char **json);
/* Compiles them for these targets into that directory. A run with HONE_CACHE set to its absolute path compiles nothing and needs
 * no NVRTC. Needs no driver and no card. */
HONE_API hone_status hone_kernels_build(const hone_options *options, char **json);

/* Writes the model with the adapter's change in its weights (option adapter) to the option output, reads it back and compares
 * logits; the report says how much of the change is left after rounding. hone_quantize: only the model, as a GGUF file. With the
 * option dry_run nothing is written: the report has the files and their sizes, which are those that will be. */
HONE_API hone_status hone_merge(const hone_options *options, char **json);
HONE_API hone_status hone_quantize(const hone_options *options, char **json);
/* Writes only the adapter, for another program: a GGUF adapter if output ends in .gguf, else PEFT's layout. */
HONE_API hone_status hone_export(const hone_options *options, char **json);

/* What a training step makes the device do, and how long it takes: a few steps on synthetic tokens (option count: every launch
 * and copy; option profile: the time of each op next to that of only its matmuls; option graph: captured against uncaptured steps
 * on CUDA). */
HONE_API hone_status hone_bench(const hone_options *options, char **json);

HONE_API hone_status hone_devices(const hone_options *options, char **json); /* of this machine, and what was not found */

#ifdef __cplusplus
}
#endif

#endif
