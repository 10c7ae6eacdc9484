/* Locking the output directory, and moving aside what is in the way. */
#include "train/output.h"

#include <stdio.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"

enum { OWNER_BYTES_MAX = 512, EARLIER_MAX = 1 << 20 };

static enum status refuse(const struct output *o)
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

static enum status take(struct output *o)
{
    bool taken;
    enum status status;
    do
        status = lock_take(&o->lock, o->lock_path, LOCK_ALONE, false, &taken);
    while (status == OK && !taken && !file_exists(o->lock_path)); /* released just now */
    if (status == ERR_UNSUPPORTED) {
        log_message(LOG_WARNING, "%s: this file system has no locks: do not start a second run there", o->dir);
        return OK;
    }
    TRY(status);
    return taken ? lock_sign(&o->lock, o->lock_path) : refuse(o);
}

enum status output_take(struct output *o, const char *dir, struct arena *arena)
{
    *o = (struct output){.lock = {-1}, .made = !file_exists(dir)};
    TRY(directory_make(dir));
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
    return held ? refuse(&o) : OK;
}

void output_release(struct output *o)
{
    if (!o->dir)
        return;
    if (o->lock.fd >= 0)
        file_remove(o->lock_path);
    lock_release(&o->lock);
    if (o->made)
        directory_remove_empty(o->dir);
    *o = (struct output){.lock = {-1}};
}

static enum status move(struct arena *arena, const char *dir, const char *const *names, int64_t count, bool dry)
{
    const char *to = NULL;
    for (int k = 1; k < EARLIER_MAX && (!to || file_exists(to)); k++) {
        to = arena_format(arena, "%s/earlier-%d", dir, k);
        if (!to)
            return ERR_MEMORY;
    }
    if (!dry)
        TRY(directory_make(to));
    for (int64_t i = 0; i < count && !dry; i++) {
        const char *from = file_join(arena, dir, names[i]), *there = file_join(arena, to, names[i]);
        if (!from || !there)
            return ERR_MEMORY;
        TRY(file_rename(from, there));
    }
    log_message(LOG_WARNING, "%s%s of another run: %smoved to %s", names[0], count > 1 ? " and others are" : " is",
                dry ? "would be " : "", to);
    return OK;
}

enum status output_set_aside(const char *dir, const char *const *names, int64_t count, bool dry)
{
    struct arena arena = {0};
    enum status status = count ? move(&arena, dir, names, count, dry) : OK;
    arena_free(&arena);
    return status;
}
