/* Slots: several adapters over the base, the programs and the memory of one trainer, which train in turn.
 *
 * A trainer opens with one, slot 0. A slot is what would be another run's: the adapter's weights, the optimizer's state,
 * gradients that wait for a step, where the run stands (run_state.h), its id, and its seed. Programs have the shape in them
 * (ranks, scales, modules), and find a slot's arrays where slot 0's were when they were prepared. So all slots have the trainer's
 * shape, one of them is selected and lies there, on every device, and the others are copies in host memory, or in files.
 * Selecting one copies the selected one out and that one in; nothing is prepared or compiled.
 *
 * What a trainer does, it does to the selected slot. If one cannot be put on the device, and the one before it cannot be put
 * back, none is selected: slots_check_selected refuses what needs one until slots_select can.
 */
#ifndef TRAIN_SLOTS_H
#define TRAIN_SLOTS_H

#include "train/trainer.h"

struct slots;

struct slot_start {
    int64_t seed;        /* of the first weights and of dropout */
    const char *adapter; /* a directory in PEFT's layout, with the trainer's shape, whose weights it begins with; NULL: as the
                          * trainer began, with this seed */
};

/* Makes a slot, which is selected then. After a failure of this or of the next two, all is as it was. */
enum status slots_create(struct trainer *t, const struct slot_start *start, int64_t *number);

/* The same from what trainer_save_state has saved of a slot, with its seed and its run's id. */
enum status slots_load(struct trainer *t, const char *dir, int64_t *number);

/* Between steps; reads back one that was evicted. After a failure the selected one stays, or none is selected. */
enum status slots_select(struct trainer *t, int64_t number);

/* Moves one to a file without a name in a directory, and frees its host memory; one that is in a file already moves to another.
 * In place of the selected one slot 0 is selected, or if its file cannot be read the first that can be; slot 0 itself stays while
 * it is selected. After a failure all is as it was, as far as slots_select can. */
enum status slots_evict(struct trainer *t, int64_t number, const char *dir);

/* Forgets one; in place of the selected one as above, or where no other can be, none. Slot 0 cannot be closed. Numbers are not
 * used again. */
enum status slots_close(struct trainer *t, int64_t number);

struct slot_facts {
    int64_t number, seed, step, tokens;
    int64_t waiting;                /* sequences whose gradients wait for its next step */
    int64_t host_bytes, disk_bytes; /* besides its place on the device */
    bool selected;
};

/* Of a slot, or with -1 of the selected one, which there must be. */
enum status slots_facts(const struct trainer *t, int64_t number, struct slot_facts *facts);
int64_t slots_count(const struct trainer *t);

/* ERR_ARGUMENT while none is selected. */
enum status slots_check_selected(const struct trainer *t);

/* ERR_ARGUMENT unless slot 0 is selected: the run over the trainer's own data is its. */
enum status slots_check_run(const struct trainer *t);

/* All of them, and their files. */
void slots_free(struct trainer *t);

#endif
