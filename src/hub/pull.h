/* Downloading a model from the hub, into its cache or a plain directory.
 *
 * A file is downloaded next to its name, as HASH.incomplete, which a later pull goes on with (base/part.h); it gets its name once
 * its size and its checksum are those of the hub's list. What is in an output directory already and differs is not replaced
 * unasked, and below the model's folder no linked directory is written through. The commit's directory of links comes after all
 * files, and the branch's name last. So whatever ends a pull, no program finds a part of a model; two pulls of one model share
 * the work by locks.
 */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/listing.h"

/* Bytes done and in all, of the wanted files, while `file` is downloaded. False: stop. */
typedef bool pull_progress(void *context, const char *file, int64_t done, int64_t bytes);

struct pull_request {
    const char *name, *revision;
    const char *include; /* NULL: what hone needs */
    const char *output;  /* a directory; NULL: the cache */
    bool overwrite;      /* files in it that differ are replaced */
    bool dry;            /* only says what would be downloaded: all that the list names, if an index of weights is not here yet */
    pull_progress *progress; /* may be NULL */
    void *context;
};

struct pull_result {
    struct hub_listing listing;
    const char *path;     /* the directory with the files */
    int64_t files, bytes; /* wanted */
    int64_t downloaded_bytes;
    int64_t missing_bytes; /* before it began */
};

/* Texts of the result are in the arena. */
enum status pull_model(const struct pull_request *request, struct arena *arena, struct pull_result *result);

#endif
