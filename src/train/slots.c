/* Slots in turn: what each has besides the device's arrays is put aside in a list, and taken from there. */
#include "train/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cpu_pace.h"
#include "models/adapter_start.h"
#include "models/verify_files.h"
#include "state/checkpoint.h"
#include "train/slot_image.h"

enum { NONE = -1 }; /* in place of the selected slot's number */

struct slot {
    int64_t number, seed;
    char *adapter;     /* the directory that it was created with; NULL: none */
    const char *began; /* what results say that it began with; NULL: nothing */
    struct slot_image image;
    struct slot_file file;
    /* the trainer's members of these names, while another slot is selected; of times, how long ago */
    struct micro_sums sums;
    struct run_state state;
    struct identity identity;
    const char *resume;
    bool other_run;
    json_t *origin;
};

struct slots {
    const struct options *given; /* the job's before the first slot was made */
    struct options options;      /* the job's since then: with the seed and the adapter of the selected slot */
    struct slot *list;           /* by number */
    int64_t count, capacity, next;
    int64_t selected;        /* NONE: the arrays on the device are nobody's */
    char *spare;             /* arrays of an image, so that selecting allocates nothing */
    struct identity digests; /* once one slot has them: those that all share, and of slot 0's first weights */
};

/* --- the list --------------------------------------------------------------------------------------------------------------- */

static struct slot *slots_find(const struct slots *s, int64_t number)
{
    int64_t low = 0, high = s->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (s->list[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count && s->list[low].number == number ? &s->list[low] : NULL;
}

static enum status slots_unknown(const struct trainer *t, int64_t number)
{
    int64_t next = t->slots ? t->slots->next : 1;
    if (number > 0 && number < next)
        return fail(ERR_ARGUMENT, "slot %lld was closed", (long long)number);
    return fail(ERR_ARGUMENT, "there is no slot %lld: the last that was made is %lld", (long long)number, (long long)next - 1);
}

static void slot_free(struct slot *slot)
{
    memory_free(slot->adapter);
    slot_image_free(&slot->image);
    slot_image_remove(&slot->file);
    json_decref(slot->origin);
    *slot = (struct slot){0};
}

static enum status check_supported(const struct trainer *t)
{
    if (t->build.group)
        return fail(ERR_UNSUPPORTED, "a trainer of %d ranks has one slot: slots are for a single process",
                    group_size(t->build.group));
    if (t->job.full)
        return fail(ERR_UNSUPPORTED, "slots hold adapters, and this trainer trains all weights (--finetuning-type full)");
    return stepper_at_rest(&t->stepper);
}

/* The trainer's own becomes the first of the list. */
static enum status slots_begin(struct trainer *t)
{
    if (t->slots)
        return OK;
    struct slots *s = memory_alloc(sizeof *s);
    if (!s)
        return ERR_MEMORY;
    enum status status = memory_grow(&s->list, &s->capacity, 1, (int64_t)sizeof *s->list);
    if (status != OK) {
        memory_free(s);
        return status;
    }
    s->given = t->job.options;
    s->options = *t->job.options;
    s->list[0] = (struct slot){.seed = t->job.options->seed, .began = t->job.options->init_adapter};
    s->count = s->next = 1;
    t->job.options = &s->options;
    t->slots = s;
    return OK;
}

/* The arrays that the selected slot moves to. */
static enum status make_spare(struct trainer *t)
{
    struct slots *s = t->slots;
    int64_t sums;
    if (!s->spare)
        s->spare = memory_alloc(slot_image_bytes(&t->build, &sums));
    return s->spare ? OK : ERR_MEMORY;
}

/* --- in turn ---------------------------------------------------------------------------------------------------------------- */

/* Digests of the base and of the data take long, and are the same for all slots. */
static void set_digests(struct identity *identity, const struct identity *digests)
{
    char run[RUN_ID_SIZE];
    memcpy(run, identity->run, sizeof run);
    *identity = *digests;
    memcpy(identity->run, run, sizeof run);
}

/* The first slot that has them began as the trainer did: others get theirs when they are made. */
static void share_digests(struct slots *s, struct identity *identity)
{
    if (identity->hashed && !s->digests.hashed)
        s->digests = *identity;
    if (!identity->hashed && s->digests.hashed)
        set_digests(identity, &s->digests);
}

/* Afterwards the trainer has no slot. */
static void slots_put_aside(struct trainer *t, struct slot *slot)
{
    share_digests(t->slots, &t->snap.identity);
    slot->sums = t->stepper.sums;
    slot->sums.started = clock_seconds() - slot->sums.started;
    slot->sums.gemm_seconds = cpu_gemm_seconds(t->build.session.device) - slot->sums.gemm_seconds;
    slot->state = t->snap.state;
    slot->identity = t->snap.identity;
    slot->resume = t->snap.resume;
    slot->other_run = t->snap.other_run;
    slot->origin = t->snap.origin;
    t->stepper.sums = (struct micro_sums){0};
    t->snap.origin = NULL;
    t->slots->selected = NONE;
}

static void slots_take_up(struct trainer *t, struct slot *slot)
{
    struct slots *s = t->slots;
    share_digests(s, &slot->identity);
    t->stepper.sums = slot->sums;
    t->stepper.sums.started = clock_seconds() - slot->sums.started;
    t->stepper.sums.gemm_seconds = cpu_gemm_seconds(t->build.session.device) - slot->sums.gemm_seconds;
    t->stepper.queue.ended = 0; /* of another slot's step */
    t->snap.state = slot->state;
    t->snap.identity = slot->identity;
    t->snap.resume = slot->resume;
    t->snap.other_run = slot->other_run;
    t->snap.origin = slot->origin;
    slot->origin = NULL;
    s->options.seed = slot->seed;
    s->options.init_adapter = slot->began;
    s->selected = slot->number;
}

/* What it is lies on the device: its memory is that of the next one that leaves. */
static void slot_is_there(struct slots *s, struct slot *slot)
{
    if (!s->spare) {
        s->spare = slot->image.arrays;
        slot->image.arrays = NULL;
    }
    slot_image_free(&slot->image);
    slot_image_remove(&slot->file);
}

/* Copies the selected slot's arrays to the spare memory, and its gradients if there are any; and, unless `dir` is NULL, both to a
 * file there. */
static enum status slot_leave(struct trainer *t, struct slot *out, const char *dir)
{
    struct slots *s = t->slots;
    int64_t sums;
    TRY(make_spare(t));
    (void)slot_image_bytes(&t->build, &sums);
    if (t->stepper.sums.sequences && !(out->image.sums = memory_alloc(sums)))
        return ERR_MEMORY;
    out->image.arrays = s->spare;
    s->spare = NULL;
    enum status status = slot_image_take(&t->build, &out->image);
    if (status == OK && dir)
        status = slot_image_write(&t->build, &out->image, dir, &out->file);
    if (status != OK)
        slot_is_there(s, out);
    return status;
}

/* What a new slot begins with. */
struct beginning {
    const struct model *adapter; /* NULL: as the trainer began */
};

/* Sums of gradients are zero between steps: only those that wait are copied. */
static enum status slot_enter(struct trainer *t, const struct slot *in, const struct beginning *begins)
{
    struct session *s = &t->build.session;
    struct stepper *st = &t->stepper;
    if (st->sums.sequences)
        st->stale = true;
    if (!in->image.sums)
        TRY(stepper_clear_stale(st));
    st->stale = true; /* until all of it is there */
    TRY(slot_image_put(&t->build, &in->image));
    TRY(begins ? adapter_start(&s->model, &s->engine, begins->adapter, (uint64_t)in->seed) : OK);
    st->stale = false;
    return OK;
}

/* After a failure: the one that has left comes back. If that fails too, it stays in host memory, and none is selected. */
static enum status slot_return(struct trainer *t, struct slot *out, enum status status)
{
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status_message());
    if (slot_image_put(&t->build, &out->image) == OK) {
        t->stepper.stale = !out->image.sums;
        slot_is_there(t->slots, out);
        return fail(status, "%s", message);
    }
    slot_image_remove(&out->file);
    slots_put_aside(t, out);
    return fail(status, "%s; slot %lld, which was selected, is in host memory, and none is selected now", message,
                (long long)out->number);
}

/* Another slot, whose image is in host memory, in place of the selected one, which comes back if that fails. `begins` is NULL for
 * one that has begun. The selected one goes to a file in `dir`, unless that is NULL. */
static enum status slot_exchange(struct trainer *t, struct slot *in, const struct beginning *begins, const char *dir)
{
    struct slots *s = t->slots;
    struct slot *out = s->selected == NONE ? NULL : slots_find(s, s->selected);
    enum status status = out ? slot_leave(t, out, dir) : OK;
    if (status == OK) {
        status = slot_enter(t, in, begins);
        if (status != OK && out)
            status = slot_return(t, out, status);
    }
    if (status != OK) {
        if (slot_image_is_away(&in->file))
            slot_image_free(&in->image);
        return status;
    }
    if (out)
        slots_put_aside(t, out);
    if (out && slot_image_is_away(&out->file))
        slot_image_free(&out->image);
    slots_take_up(t, in);
    slot_is_there(s, in);
    if (t->build.generator.session)
        generate_reset(&t->build.generator);
    return OK;
}

/* Into host memory, where slot_exchange takes it from. */
static enum status slot_fetch(const struct trainer *t, struct slot *slot)
{
    return slot_image_is_away(&slot->file) ? slot_image_read(&t->build, &slot->file, &slot->image) : OK;
}

enum status slots_select(struct trainer *t, int64_t number)
{
    if (number >= 0 && number == (t->slots ? t->slots->selected : 0))
        return OK;
    TRY(check_supported(t));
    struct slot *in = t->slots ? slots_find(t->slots, number) : NULL;
    if (!in)
        return slots_unknown(t, number);
    TRY(slot_fetch(t, in));
    return slot_exchange(t, in, NULL, NULL);
}

/* The first besides this one whose file can be read, if it is in one: slot 0 as a rule. It is in host memory then. */
static enum status slots_fetch_other(const struct trainer *t, const struct slot *besides, struct slot **other)
{
    const struct slots *s = t->slots;
    enum status status = OK;
    *other = NULL;
    for (int64_t i = 0; i < s->count; i++) {
        *other = &s->list[i];
        if (*other == besides)
            continue;
        status = slot_fetch(t, *other);
        if (status == OK)
            return OK;
        log_message(LOG_WARNING, "slot %lld cannot be selected: %s", (long long)(*other)->number, status_message());
    }
    return status;
}

/* The trainer has no slot any more, and what is on the device is nobody's. */
static void slots_abandon(struct trainer *t, struct slot *slot)
{
    slots_put_aside(t, slot);
    t->stepper.stale = true;
}

/* --- new ones --------------------------------------------------------------------------------------------------------------- */

static enum status hash_shared(struct trainer *t)
{
    struct slots *s = t->slots;
    const struct session *session = &t->build.session;
    share_digests(s, &t->snap.identity);
    return identity_hash(&s->digests, &session->model, session->tuning.lora, &t->rows.data, &t->rows.eval_data);
}

/* Adds a slot, with an image of zeros that nothing begins with yet. */
static enum status slots_add(struct trainer *t, int64_t seed, const char *adapter, struct slot **out)
{
    struct slots *s = t->slots;
    struct slot slot = {.number = s->next, .seed = seed, .state = run_state_new(clock_moment())};
    int64_t sums, bytes = slot_image_bytes(&t->build, &sums);
    TRY(memory_grow(&s->list, &s->capacity, s->count + 1, (int64_t)sizeof *s->list));
    TRY(identity_draw(&slot.identity));
    slot.state.slots = t->build.slots;
    slot.image.arrays = memory_alloc(bytes);
    slot.adapter = adapter ? memory_alloc((int64_t)strlen(adapter) + 1) : NULL;
    if (!slot.image.arrays || (adapter && !slot.adapter)) {
        slot_free(&slot);
        return ERR_MEMORY;
    }
    if (adapter)
        strcpy(slot.adapter, adapter);
    s->next++;
    s->list[s->count] = slot;
    *out = &s->list[s->count++];
    return OK;
}

static void slots_remove(struct slots *s, struct slot *slot)
{
    int64_t at = slot - s->list;
    slot_free(slot);
    memmove(slot, slot + 1, (size_t)(s->count - at - 1) * sizeof *slot);
    s->count--;
    if (s->count == 1) {
        memory_free(s->spare);
        s->spare = NULL;
    }
}

/* Takes back the last that was added. */
static void slots_undo(struct slots *s)
{
    slots_remove(s, &s->list[s->count - 1]);
    s->next--;
}

static enum status slots_new(struct trainer *t, int64_t seed, const char *adapter, const struct identity *identity,
                             const struct beginning *begins, int64_t *number)
{
    struct slot *slot;
    TRY(slots_add(t, seed, adapter, &slot));
    if (identity)
        set_digests(&slot->identity, identity);
    bool as_trainer = !identity || !strcmp(identity->init_adapter, t->slots->digests.init_adapter);
    slot->began = adapter ? slot->adapter : as_trainer ? t->slots->given->init_adapter : NULL;
    *number = slot->number;
    enum status status = slot_exchange(t, slot, begins, NULL);
    if (status != OK)
        slots_undo(t->slots);
    return status;
}

/* The adapter must be for this base, as one of --init-adapter. */
static enum status check_adapter_base(struct trainer *t, const struct model *from)
{
    const struct options *o = t->job.options;
    const struct base_asked asked = {o->model_name_or_path, o->hub_name, o->any_base};
    char wanted[HASH_TEXT];
    TRY(adapter_base_check(from, &asked));
    TRY(hash_shared(t));
    return !adapter_base_wants(from, &asked, wanted) || !strcmp(t->slots->digests.base, wanted) ? OK
                                                                                                : fail_other_base(from, &asked);
}

static enum status create_from(struct trainer *t, const struct slot_start *start, struct model *from, int64_t *number)
{
    const struct session *s = &t->build.session;
    struct identity identity;
    TRY(adapter_start_check(&s->model, s->tuning.lora, from));
    TRY(check_adapter_base(t, from));
    identity = t->slots->digests;
    TRY(weights_digest(&from->weights, true, identity.init_adapter));
    return slots_new(t, start->seed, start->adapter, &identity, &(struct beginning){from}, number);
}

enum status slots_create(struct trainer *t, const struct slot_start *start, int64_t *number)
{
    struct model from;
    TRY(check_supported(t));
    TRY(slots_begin(t));
    if (!start->adapter)
        return slots_new(t, start->seed, NULL, NULL, &(struct beginning){NULL}, number);
    TRY(verify_files_check(start->adapter));
    TRY(model_open(&from, t->job.options->model_name_or_path, start->adapter, true));
    enum status status = create_from(t, start, &from, number);
    model_close(&from);
    return status;
}

/* --- saved ones ------------------------------------------------------------------------------------------------------------- */

/* What a slot must have before its state can be loaded into it; all else is compared as with any state. */
static enum status read_origin(const char *dir, int64_t *seed, char init_adapter[HASH_TEXT])
{
    json_t *tree = NULL;
    TRY(checkpoint_dir_read(dir, &tree));
    const char *text = json_string_value(json_object_get(json_object_get(tree, "settings"), "seed"));
    const char *digest = json_string_value(json_object_get(tree, "init_adapter"));
    char *end = NULL;
    *seed = text ? strtoll(text, &end, 10) : -1;
    bool known = *seed >= 0 && end > text && !*end && digest && strlen(digest) < HASH_TEXT;
    snprintf(init_adapter, HASH_TEXT, "%s", known ? digest : "");
    json_decref(tree);
    return known ? OK : fail(ERR_FORMAT, "%s/" CHECKPOINT_STATE ": does not say the seed and the first adapter of its run", dir);
}

/* After a failure: the new slot, which is selected, gives way to the one before it. */
static enum status slots_take_back(struct trainer *t, int64_t before, enum status status)
{
    char message[STATUS_MESSAGE_SIZE];
    struct slots *s = t->slots;
    snprintf(message, sizeof message, "%s", status_message());
    slots_abandon(t, &s->list[s->count - 1]);
    if (before != NONE && slots_select(t, before) != OK)
        log_message(LOG_WARNING, "slot %lld, which was selected, cannot be selected: %s", (long long)before, status_message());
    slots_undo(s);
    return fail(status, "%s", message);
}

enum status slots_load(struct trainer *t, const char *dir, int64_t *number)
{
    char init_adapter[HASH_TEXT];
    bool begun;
    int64_t seed;
    TRY(check_supported(t));
    TRY(read_origin(dir, &seed, init_adapter));
    TRY(slots_begin(t));
    TRY(hash_shared(t));
    int64_t before = t->slots->selected;
    struct identity identity = t->slots->digests;
    memcpy(identity.init_adapter, init_adapter, sizeof init_adapter);
    TRY(slots_new(t, seed, NULL, &identity, NULL, number));
    enum status status = checkpoint_load(&t->snap, dir, &begun);
    t->snap.state.slots = t->build.slots; /* of the micro-batches that the programs are prepared for */
    return status == OK ? OK : slots_take_back(t, before, status);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

/* In a file already: to another one. */
static enum status slot_move(struct trainer *t, struct slot *slot, const char *dir)
{
    struct slot_file file;
    TRY(slot_fetch(t, slot));
    enum status status = slot_image_write(&t->build, &slot->image, dir, &file);
    if (status == OK) {
        slot_image_remove(&slot->file);
        slot->file = file;
    }
    if (slot_image_is_away(&slot->file))
        slot_image_free(&slot->image);
    return status;
}

enum status slots_evict(struct trainer *t, int64_t number, const char *dir)
{
    TRY(check_supported(t));
    struct slot *slot = t->slots ? slots_find(t->slots, number) : NULL, *other;
    if (!slot && number)
        return slots_unknown(t, number);
    if (number == 0 && (!slot || t->slots->selected == 0))
        return fail(ERR_ARGUMENT, "slot 0 is selected, and stays where it is: select another one first");
    if (number != t->slots->selected)
        return slot_move(t, slot, dir);
    TRY(slots_fetch_other(t, slot, &other));
    return slot_exchange(t, other, NULL, dir);
}

enum status slots_close(struct trainer *t, int64_t number)
{
    struct slot *other;
    TRY(check_supported(t));
    if (number == 0)
        return fail(ERR_ARGUMENT, "slot 0 is the trainer's own, and is closed with it");
    if (!t->slots || !slots_find(t->slots, number))
        return slots_unknown(t, number);
    struct slot *slot = slots_find(t->slots, number);
    if (number == t->slots->selected) {
        slots_abandon(t, slot);
        if (slots_fetch_other(t, slot, &other) != OK || slot_exchange(t, other, NULL, NULL) != OK)
            log_message(LOG_WARNING, "slot %lld was closed, and no other could be selected: %s", (long long)number,
                        status_message());
    }
    slots_remove(t->slots, slot);
    return OK;
}

static void selected_facts(const struct trainer *t, struct slot_facts *facts)
{
    *facts = (struct slot_facts){
        .number = t->slots ? t->slots->selected : 0,
        .seed = t->job.options->seed,
        .step = t->snap.state.step,
        .tokens = t->snap.state.tokens,
        .waiting = t->stepper.sums.sequences,
        .selected = true,
    };
}

enum status slots_facts(const struct trainer *t, int64_t number, struct slot_facts *facts)
{
    const struct slots *s = t->slots;
    if (number == -1)
        TRY(slots_check_selected(t));
    if (number == -1 || number == (s ? s->selected : 0)) {
        selected_facts(t, facts);
        return OK;
    }
    const struct slot *slot = s ? slots_find(s, number) : NULL;
    int64_t sums, bytes = slot_image_bytes(&t->build, &sums);
    if (!slot)
        return slots_unknown(t, number);
    bytes += slot->image.sums || slot->file.has_sums ? sums : 0;
    *facts = (struct slot_facts){
        .number = number,
        .seed = slot->seed,
        .step = slot->state.step,
        .tokens = slot->state.tokens,
        .waiting = slot->sums.sequences,
        .host_bytes = slot_image_is_away(&slot->file) ? 0 : bytes,
        .disk_bytes = slot_image_is_away(&slot->file) ? bytes : 0,
    };
    return OK;
}

int64_t slots_count(const struct trainer *t)
{
    return t->slots ? t->slots->count : 1;
}

enum status slots_check_selected(const struct trainer *t)
{
    return t->slots && t->slots->selected == NONE
               ? fail(ERR_ARGUMENT, "no slot is selected, because the last one could not be replaced by another: select one")
               : OK;
}

enum status slots_check_run(const struct trainer *t)
{
    int64_t selected = t->slots ? t->slots->selected : 0;
    return selected ? fail(ERR_ARGUMENT, "slot %lld is selected, and a run over the trainer's data is of slot 0: select that",
                           (long long)selected)
                    : OK;
}

void slots_free(struct trainer *t)
{
    struct slots *s = t->slots;
    if (!s)
        return;
    for (int64_t i = 0; i < s->count; i++)
        slot_free(&s->list[i]);
    t->job.options = s->given;
    memory_free(s->spare);
    memory_free(s->list);
    memory_free(s);
    t->slots = NULL;
}
