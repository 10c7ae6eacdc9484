/* Where an export goes: a name of its own next to the final one until it is complete.
 *
 *     TRY(target_open(&t, ...));                        what can be refused only by the names
 *     TRY(target_file(&t, "model.safetensors", bytes))  once for each file that it consists of
 *     TRY(target_start(&t));                            room on the disk; then, unless it is a dry run, write into t.part
 *                                                       (and into t.modelfile_part)
 *     status = target_close(&t, status);
 */
#ifndef EXPORT_TARGET_H
#define EXPORT_TARGET_H

#include <stdbool.h>

#include "base/memory.h"
#include "export/export.h"
#include "format/adapter.h"

struct target {
    struct arena arena;
    const char *output, *part;
    const char *known;          /* the file that tells what it is of a directory of this export */
    const char *parent, *there; /* where part goes, and the nearest directory to it that exists */
    bool gguf, dry, overwrite;
    const char *modelfile, *modelfile_part; /* of a GGUF model, next to it; else NULL */
    json_t *files;                          /* of target_file, for the report */
    int64_t bytes, room;                    /* of all files; what is free on the disk, -1: the system does not say */
};

/* Refuses an output that exists unless it may be replaced, one that is the input, and one that cannot be written. */
enum status target_open(struct target *t, const struct export_options *o, const char *known, bool modelfile);

/* A file of the output that will have so many bytes: by its name in a directory, else by its path. */
enum status target_file(struct target *t, const char *name, int64_t bytes);

/* Makes the directories, after all files are known. ERR_IO if the disk has no room for them. */
enum status target_start(struct target *t);

/* What is true of every export: the output, its files and the disk. */
enum status target_report(const struct target *t, json_t *report);

/* What reading back found; a difference that is not a number was not looked for. */
enum status target_compared(json_t *report, double tensor_error, double logits_difference);

/* After an export that ended with `status`: gives it its name, or removes it. What has got the name since target_open, from
 * another export, is not replaced either unless it may be. */
enum status target_close(struct target *t, enum status status);

#endif
