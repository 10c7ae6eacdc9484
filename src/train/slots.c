/* Slots in turn: what each has besides the device's arrays is put aside in a list, and taken from there. */
#include "train/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/adapter_start.h"
#include "models/verify_files.h"
#include "state/checkpoint.h"
#include "train/slot_image.h"

struct slot {
    int64_t number, seed;
    char *adapter;     /* the directory that it was created with; NULL: none */
    const char *began; /* what results say that it began with; NULL: nothing */
    struct slot_image image;
    struct slot_file file;
    /* the trainer's members of these names, while another slot is selected */
    struct micro_sums sums;
    struct run_state state;
    struct identity identity;
    const char *resume;
    json_t *origin;
};

struct slots {
    const struct options *given; /* the job's before the first slot was made */
    struct options options;      /* the job's since then: with the seed and the adapter of the selected slot */
    struct slot *list;           /* by number */
    int64_t count, capacity, next, selected;
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

static void slots_put_aside(struct trainer *t, struct slot *slot)
{
    slot->sums = t->stepper.sums;
    slot->state = t->snap.state;
    slot->identity = t->snap.identity;
    slot->resume = t->snap.resume;
    slot->origin = t->snap.origin;
}

static void slots_take_up(struct trainer *t, struct slot *slot)
{
    struct slots *s = t->slots;
    t->stepper.sums = slot->sums;
    t->snap.state = slot->state;
    t->snap.identity = slot->identity;
    t->snap.resume = slot->resume;
    t->snap.origin = slot->origin;
    slot->origin = NULL;
    s->options.seed = slot->seed;
    s->options.init_adapter = slot->began;
    s->selected = slot->number;
}

/* Copies the selected slot's arrays to the spare memory, and its gradients if there are any. */
static enum status slot_leave(struct trainer *t, struct slot *out)
{
    struct slots *s = t->slots;
    int64_t sums;
    (void)slot_image_bytes(&t->build, &sums);
    if (t->stepper.sums.sequences && !(out->image.sums = memory_alloc(sums)))
        return ERR_MEMORY;
    out->image.arrays = s->spare;
    s->spare = NULL;
    return slot_image_take(&t->build, &out->image);
}

/* Its memory is that of the next one that leaves. */
static void slot_arrived(struct slots *s, struct slot *in)
{
    s->spare = in->image.arrays;
    in->image.arrays = NULL;
    slot_image_free(&in->image);
}

/* What a new slot begins with. */
struct beginning {
    const struct model *adapter; /* NULL: as the trainer began */
};

static enum status slot_enter(struct trainer *t, const struct slot *in, const struct beginning *begins, bool clear)
{
    struct session *s = &t->build.session;
    double norm;
    if (clear)
        TRY(optimizer_clear(&t->build.optimizer, s, &norm));
    TRY(slot_image_put(&t->build, &in->image));
    return begins ? adapter_start(&s->model, &s->engine, begins->adapter, (uint64_t)in->seed) : OK;
}

/* Another slot, whose image is in host memory, in place of the selected one, which comes back if that fails. `begins` is NULL for
 * one that has begun. Gradient sums are zero between steps, and only those that wait are copied. */
static enum status slot_exchange(struct trainer *t, struct slot *in, const struct beginning *begins)
{
    struct slots *s = t->slots;
    struct slot *out = slots_find(s, s->selected);
    enum status status = slot_leave(t, out), back = OK;
    if (status == OK) {
        status = slot_enter(t, in, begins, out->image.sums != NULL);
        if (status != OK)
            back = slot_image_put(&t->build, &out->image);
    }
    if (status != OK) {
        if (out->image.arrays)
            slot_arrived(s, out);
        slot_image_free(&out->image);
        return back == OK ? status : back;
    }
    share_digests(s, &t->snap.identity);
    slots_put_aside(t, out);
    share_digests(s, &in->identity);
    slots_take_up(t, in);
    slot_arrived(s, in);
    if (t->build.generator.session)
        generate_reset(&t->build.generator);
    return OK;
}

enum status slots_select(struct trainer *t, int64_t number)
{
    TRY(check_supported(t));
    struct slot *in = t->slots ? slots_find(t->slots, number) : NULL;
    if (!in)
        return number == 0 ? OK : slots_unknown(t, number);
    if (number == t->slots->selected)
        return OK;
    TRY(make_spare(t));
    if (in->file.path)
        TRY(slot_image_read(&t->build, &in->file, &in->image));
    enum status status = slot_exchange(t, in, NULL);
    if (status == OK)
        slot_image_remove(&in->file);
    else if (in->file.path)
        slot_image_free(&in->image);
    return status;
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
    TRY(make_spare(t));
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
    enum status status = slot_exchange(t, slot, begins);
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

enum status slots_load(struct trainer *t, const char *dir, int64_t *number)
{
    char init_adapter[HASH_TEXT], message[STATUS_MESSAGE_SIZE];
    int64_t seed;
    TRY(check_supported(t));
    TRY(read_origin(dir, &seed, init_adapter));
    TRY(slots_begin(t));
    TRY(hash_shared(t));
    int64_t before = t->slots->selected;
    struct identity identity = t->slots->digests;
    memcpy(identity.init_adapter, init_adapter, sizeof init_adapter);
    TRY(slots_new(t, seed, NULL, &identity, NULL, number));
    enum status status = checkpoint_load(&t->snap, dir);
    t->snap.state.slots = t->build.slots; /* of the micro-batches that the programs are prepared for */
    if (status == OK)
        return OK;
    snprintf(message, sizeof message, "%s", status_message());
    enum status back = slots_select(t, before);
    if (back != OK)
        return back;
    slots_undo(t->slots);
    return fail(status, "%s", message);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

enum status slots_evict(struct trainer *t, int64_t number, const char *dir)
{
    TRY(check_supported(t));
    struct slot *slot = t->slots ? slots_find(t->slots, number) : NULL;
    if (!slot && number)
        return slots_unknown(t, number);
    if (number == 0 && (!slot || t->slots->selected == 0))
        return fail(ERR_ARGUMENT, "slot 0 is selected, and stays where it is: select another one first");
    if (slot->file.path)
        return OK;
    if (number == t->slots->selected)
        TRY(slots_select(t, 0));
    TRY(slot_image_write(&t->build, &slot->image, dir, &slot->file));
    slot_image_free(&slot->image);
    return OK;
}

enum status slots_close(struct trainer *t, int64_t number)
{
    TRY(check_supported(t));
    if (number == 0)
        return fail(ERR_ARGUMENT, "slot 0 is the trainer's own, and is closed with it");
    if (!t->slots || !slots_find(t->slots, number))
        return slots_unknown(t, number);
    if (number == t->slots->selected)
        TRY(slots_select(t, 0));
    slots_remove(t->slots, slots_find(t->slots, number));
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
        .host_bytes = slot->file.path ? 0 : bytes,
        .disk_bytes = slot->file.path ? bytes : 0,
    };
    return OK;
}

int64_t slots_count(const struct trainer *t)
{
    return t->slots ? t->slots->count : 1;
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
