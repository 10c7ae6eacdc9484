/* A session: a model on a device with all the programs it will run.
 *
 *     session_open → session_add(program) … → session_plan → (sizes are known) → session_prepare → runs → session_close
 */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include "base/limits.h"
#include "models/adapter_base.h"

struct session {
    struct device *device;
    struct device_info info;
    struct memory_room room; /* of a device that uses host memory: what info.memory_free follows from; else empty */
    struct memory_room host; /* where layers may stay in host memory: a rank's part of it, before any rank takes some */
    struct model model;
    enum run_type run;
    struct engine engine;
    struct tuning tuning; /* of all programs but those of NET_BASE_LOSS: set it before the first session_add */
    struct tuning bare;   /* of those */
    struct net **nets;    /* by program number; NULL: a program that is not a net */
    int64_t net_count;
    int64_t process_bytes;  /* what a run takes besides blocks: session_shrink */
    int64_t owner_bytes;    /* host memory that its owner takes for itself later on; the plan counts it */
    int neighbours;         /* ranks of this machine, this one too, that need as much host memory; 0: a single process */
    struct base_asked base; /* what the adapter's base is compared with; model NULL: it is not */
    bool opened;
};

enum { RUN_AUTO = -1 }; /* bfloat16 if the model's files have it and the device computes with it, else float32 */

struct session_options {
    const char *dir, *device;
    int run;              /* an enum run_type, or RUN_AUTO */
    const char *adapter;  /* a directory in PEFT's layout, or NULL */
    const char *hub_name; /* of the model, or NULL */
    bool any_base;        /* the adapter may be of another base (models/adapter_base.h) */
    bool weights;         /* false: only to plan */
    bool tells_device;    /* which one "auto" took is news, as before a run that takes long */
    bool compared;        /* the files have been compared (models/verify_files.h), or only names and shapes are asked for */
    bool load_in_4bit;    /* quantise linear layers to NF4 */
    bool double_quant;    /* and their absmax too */
    bool load_in_fp8;     /* quantise linear layers to FP8 */
    bool shard_weights;   /* each rank of the group keeps a part of the frozen weights (tensor/staged.h) */
    const char *resident_layers; /* how many layers' frozen weights stay on the device (tensor/staged.h): a number, "auto" for
                                    as many as fit, or "all"; NULL: all */
    bool offload_activations;    /* they wait in host memory for the backward pass (tensor/offload.h) */
    bool tf32;                   /* matmuls of the forward pass may round float32 to TF32 */
    struct device_options on_device;
};

enum status session_open(struct session *s, const struct session_options *options);
void session_close(struct session *s);

/* Adds a program, or finds the same one; one of training is of cross entropy. */
enum status session_add(struct session *s, enum net_goal goal, int64_t T, int64_t R, int64_t S, int64_t *index);

/* A program of training with this loss. */
enum status session_add_training(struct session *s, enum loss_id loss, int64_t T, int64_t R, int64_t *index);

/* The same unless it would need more activations than program `largest`: then *index is -1 and nothing is added. */
enum status session_add_within(struct session *s, enum loss_id loss, int64_t T, int64_t R, int64_t largest, int64_t *index);

/* Removes the net that was added last; before session_plan. */
void session_drop(struct session *s);

/* A program of the caller's, which must outlive the session. */
enum status session_add_program(struct session *s, struct program *p, int64_t *index);

/* Places everything; afterwards session_bytes is exact. */
enum status session_plan(struct session *s);

/* Bytes of activations that wait in host memory; after session_plan. */
int64_t session_offloaded(const struct session *s);

/* What the device takes besides blocks, for the programs that were added; before session_shrink. */
void session_costs(const struct session *s, struct device_costs *costs);

/* The free memory of the device less `bytes` and the costs still to come: negative if it has too little. Where addresses are
 * limited, files that are not mapped yet count too. A device that does not say how much memory is free is taken to have all of
 * it. INT64_MAX: it says nothing. */
int64_t session_room(const struct session *s, int64_t bytes, const struct device_costs *costs);

/* What layers in host memory would save of `bytes`, with as few of them on the device as the options permit; 0: nothing. */
enum status session_saves(const struct session *s, int64_t *bytes);

/* What is left for the weights in mapped files once `bytes` are allocated: with less than they take, they are read from disk
 * again and again. INT64_MAX: not known, or the device copies them. */
int64_t session_cache(const struct session *s, int64_t bytes, const struct device_costs *costs);

/* Frees what building the programs took; returns what a run takes besides blocks and lists that are not prepared yet: what the
 * process has now, and a little more. For a session that only plans, and for session_prepare. */
int64_t session_shrink(struct session *s);

/* Checks that it fits, allocates, prepares every program, uploads the weights. */
enum status session_prepare(struct session *s);

/* The plan's bytes by lifetime, and those that stay in mapped files. The sum of all is what the device needs. */
int64_t session_bytes(const struct session *s, int64_t bytes[LIFE_COUNT], int64_t *mapped);

/* Those of them that sessions of a process have once, however many use them: frozen weights of the base. */
int64_t session_shared(const struct session *s);

const char *session_dtype(const struct session *s);

#endif
