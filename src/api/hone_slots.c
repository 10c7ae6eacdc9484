/* hone.h: slots. */
#include "api/handles.h"
#include "train/slot_image.h"
#include "train/slots.h"

enum { SEED_OF_TRAINER = -1 };

static enum status check_start(const hone_slot_start *given, struct slot_start *start, const char *call)
{
    hone_slot_start taken = {0};
    if (!given)
        return OK;
    TRY(check_filled(given, sizeof *given, "start", call));
    take_over(&taken, sizeof taken, given);
    if (taken.seed && *taken.seed < 0)
        return fail(ERR_ARGUMENT, "%s: seed is %lld: it is at least 0", call, (long long)*taken.seed);
    if (taken.adapter)
        TRY(check_text(taken.adapter, "adapter", call));
    *start = (struct slot_start){taken.seed ? *taken.seed : SEED_OF_TRAINER, taken.adapter};
    return OK;
}

hone_status hone_trainer_slot_create(hone_trainer *t, const hone_slot_start *given, int64_t *slot)
{
    struct slot_start start = {.seed = SEED_OF_TRAINER};
    GIVEN(slot);
    *slot = -1;
    CHECK(check_start(given, &start, __func__));
    ENTER(t, HANDLE_TRAINER, __func__);
    if (start.seed == SEED_OF_TRAINER)
        start.seed = t->options->values.seed;
    int64_t made;
    enum status status = slots_create(&t->trainer, &start, &made);
    if (status == OK)
        *slot = made;
    return trainer_leave(t, status);
}

hone_status hone_trainer_slot_load(hone_trainer *t, const char *dir, int64_t *slot)
{
    GIVEN(slot);
    *slot = -1;
    CHECK(check_text(dir, "dir", __func__));
    ENTER(t, HANDLE_TRAINER, __func__);
    int64_t made;
    enum status status = slots_load(&t->trainer, dir, &made);
    if (status == OK)
        *slot = made;
    return trainer_leave(t, status);
}

hone_status hone_trainer_slot_select(hone_trainer *t, int64_t slot)
{
    ENTER(t, HANDLE_TRAINER, __func__);
    return trainer_leave(t, slots_select(&t->trainer, slot));
}

hone_status hone_trainer_slot_evict(hone_trainer *t, int64_t slot, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    ENTER(t, HANDLE_TRAINER, __func__);
    return trainer_leave(t, slots_evict(&t->trainer, slot, dir));
}

hone_status hone_trainer_slot_close(hone_trainer *t, int64_t slot)
{
    ENTER(t, HANDLE_TRAINER, __func__);
    return trainer_leave(t, slots_close(&t->trainer, slot));
}

hone_status hone_trainer_slot_get_info(hone_trainer *t, int64_t slot, hone_slot_info *info)
{
    struct slot_facts facts;
    int64_t sums;
    CHECK(check_struct(info, "info", __func__));
    ENTER_NESTED(t, HANDLE_TRAINER, __func__);
    enum status status = slots_facts(&t->trainer, slot, &facts);
    if (status != OK)
        return trainer_leave(t, status);
    hone_slot_info filled = {
        .slot = facts.number,
        .slots = slots_count(&t->trainer),
        .seed = facts.seed,
        .step = facts.step,
        .tokens = facts.tokens,
        .waiting = facts.waiting,
        .host_bytes = facts.host_bytes,
        .disk_bytes = facts.disk_bytes,
        .slot_bytes = slot_image_bytes(&t->trainer.build, &sums),
        .selected = facts.selected,
    };
    filled.gradient_bytes = sums;
    hand_over(info, &filled, sizeof filled);
    return trainer_leave(t, OK);
}
