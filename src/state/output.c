/* Locking the output directory, and moving aside what is in the way. */
#include "state/output.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "format/adapter.h"
#include "format/provenance.h"
#include "models/model_copy.h"

const char *const output_metrics[] = {OUTPUT_METRICS, OUTPUT_CSV, OUTPUT_EVENTS, RUN_FILE, NULL};

enum { OWNER_BYTES_MAX = 512, EARLIER_MAX = 1 << 20, TRIES_MAX = 100, LOOKS = 5 };
static const double LOOK = 0.05; /* seconds */

static enum status output_refuse(const struct output *o)
{
    struct buffer owner = {0};
    long pid = 0;
    char host[256] = "";
    enum status read = file_read(&owner, o->lock_path, OWNER_BYTES_MAX);
    bool known = read == OK && sscanf(owner.data, "%ld %255s", &pid, host) == 2;
    enum status status =
        known ? fail(ERR_ARGUMENT,
                     "%s: another run is writing there: process %ld on %s. Wait for it, stop it, or choose another --output",
                     o->dir, pid, host)
              : fail(ERR_ARGUMENT, "%s: another run is writing there. Wait for it, stop it, or choose another --output", o->dir);
    buffer_free(&owner);
    return status;
}

/* What turns out to be somebody's file is not removed with the lock. */
static enum status output_sign(struct output *o)
{
    enum status status = lock_sign(&o->lock, o->lock_path);
    if (status == ERR_ARGUMENT)
        lock_release(&o->lock);
    return status;
}

/* A lock that is not taken and not there was released just now, and with it the folder may have gone; but not again and again.
 * One that is there may be held for a moment by a process that looks whether a run has it (lock_is_held). */
static enum status take(struct output *o)
{
    bool taken = false, gone = true;
    enum status status = OK;
    for (int i = 0; i < (gone ? TRIES_MAX : LOOKS) && status == OK && !taken; i++) {
        if (!gone)
            clock_wait(LOOK);
        status = directory_make(o->dir);
        if (status == OK)
            status = lock_take(&o->lock, o->lock_path, LOCK_ALONE, false, &taken);
        gone = !file_exists(o->lock_path);
    }
    if (status == ERR_UNSUPPORTED) {
        log_message(LOG_WARNING, "%s: this file system has no locks: do not start a second run there", o->dir);
        return OK;
    }
    TRY(status);
    if (!taken && gone)
        return fail(ERR_IO, "%s: cannot be made there, or is removed at once: choose another --output", o->lock_path);
    return taken ? output_sign(o) : output_refuse(o);
}

enum status output_take(struct output *o, const char *dir, struct arena *arena)
{
    *o = (struct output){.lock = {-1}, .made = !file_exists(dir)};
    o->dir = dir;
    o->lock_path = file_join(arena, dir, "run.lock");
    enum status status = o->lock_path ? take(o) : ERR_MEMORY;
    if (status != OK)
        output_release(o);
    return status;
}

enum status output_look(const char *dir, struct arena *arena)
{
    struct output o = {.dir = dir, .lock_path = file_join(arena, dir, "run.lock")};
    const char *there;
    bool held;
    if (!o.lock_path)
        return ERR_MEMORY;
    TRY(directory_may_make(arena, dir, &there));
    enum status status = lock_is_held(o.lock_path, &held);
    if (status == ERR_UNSUPPORTED)
        return OK;
    TRY(status);
    return held ? output_refuse(&o) : lock_may_sign(o.lock_path);
}

enum status output_check(const struct output *o)
{
    if (!o->dir || !lock_is_lost(&o->lock, o->lock_path))
        return OK;
    return fail(
        ERR_IO,
        "%s: was removed, moved or replaced while this run wrote there: its run.lock is gone, or another run's. If it was "
        "moved, the same command with its new place as --output resumes the run",
        o->dir);
}

void output_release(struct output *o)
{
    if (!o->dir)
        return;
    bool ours = o->lock_path && !lock_is_lost(&o->lock, o->lock_path);
    if (ours && o->lock.fd >= 0)
        file_remove(o->lock_path);
    lock_release(&o->lock);
    if (ours && o->made)
        directory_remove_empty(o->dir);
    *o = (struct output){.lock = {-1}};
}

bool output_is_result(const char *name)
{
    return adapter_is_file(name) || model_is_file(name) || provenance_is_file(name);
}

/* A line for all that are the same. */
static void output_tell(const struct output_aside *list, int64_t count, const char *to, bool dry)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t first = 0, same = 0;
        while (strcmp(list[first].why, list[i].why) != 0)
            first++;
        for (int64_t k = i; k < count; k++)
            same += !strcmp(list[k].why, list[i].why);
        if (first == i)
            log_message(LOG_WARNING, "%s%s %s: %smoved to %s", list[i].name, same > 1 ? " and others are" : " is", list[i].why,
                        dry ? "would be " : "", to);
    }
}

static enum status output_move(struct arena *arena, const char *dir, const struct output_aside *list, int64_t count, bool dry)
{
    const char *to = NULL;
    for (int k = 1; k < EARLIER_MAX && (!to || !directory_is_free(to)); k++) {
        to = arena_format(arena, "%s/earlier-%d", dir, k);
        if (!to)
            return ERR_MEMORY;
    }
    if (!dry)
        TRY(directory_make_new(to));
    for (int64_t i = 0; i < count && !dry; i++) {
        const char *from = file_join(arena, dir, list[i].name), *there = file_join(arena, to, list[i].name);
        if (!from || !there)
            return ERR_MEMORY;
        enum status status = file_rename(from, there);
        if (status != OK) {
            char cause[512];
            snprintf(cause, sizeof cause, "%s", status_message());
            directory_remove_empty(to);
            return fail(status, "%s is in the way of the run, and cannot be moved: %s", from, cause);
        }
    }
    output_tell(list, count, to, dry);
    return OK;
}

enum status output_set_aside(const char *dir, const struct output_aside *list, int64_t count, bool dry)
{
    struct arena arena = {0};
    enum status status = count ? output_move(&arena, dir, list, count, dry) : OK;
    arena_free(&arena);
    return status;
}
