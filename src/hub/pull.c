/* Downloading a model: the list, then file by file, then the names. */
#include "hub/pull.h"

#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/name.h"
#include "base/number.h"
#include "base/part.h"
#include "hub/blob.h"
#include "hub/endpoint.h"
#include "hub/hub_cache.h"

enum { LISTING_MAX = 64 << 20, PIECE_BYTES = 1 << 20, SPACE_LEFT = 64 << 20, WRONG_MAX = 2 };
enum { SHORT_BYTES = 1 << 20, SHORT_MAX = 100 }; /* how many answers may end too soon with fewer bytes than that */

struct pull {
    const struct pull_request *request;
    struct pull_result *result;
    struct endpoint endpoint;
    struct arena *arena;
    const char *folder; /* of the model in the cache, or the output directory */
    const char *locks;
    const char *there; /* the folder, or the nearest above it that exists */
    int64_t done;      /* bytes of wanted files */
};

/* A file on its way. */
struct job {
    struct pull *pull;
    const struct hub_file *file;
    const char *path, *part_path; /* its name once it is complete, and until then */
    struct part part;
    int64_t have;   /* bytes of the part */
    struct sha sha; /* of them */
};

static enum status pull_tell(const struct pull *p, const char *file)
{
    const struct pull_request *r = p->request;
    TRY(cancel_check());
    if (r->progress && !r->progress(r->context, file, p->done, p->result->bytes))
        return fail(ERR_STOPPED, "stopped by the caller");
    return OK;
}

/* --- the list ----------------------------------------------------------------------------------------------------------- */

static enum status pull_take_text(void *context, const struct http_reply *reply, const char *bytes, int64_t count)
{
    struct buffer *text = context;
    if (!reply->received)
        text->size = 0;
    if (text->size + count > LISTING_MAX)
        return fail(ERR_FORMAT, "%s: an answer of more than %d MB; is HF_ENDPOINT a Hugging Face hub?", reply->host,
                    LISTING_MAX >> 20);
    return buffer_append(text, bytes, count);
}

static enum status read_listing(struct pull *p)
{
    const struct pull_request *r = p->request;
    const int64_t none = 0;
    struct buffer text = {0};
    const char *path = arena_format(p->arena, "/api/models/%s/revision/", r->name);
    enum status status = path ? OK : ERR_MEMORY;
    if (status == OK)
        status = endpoint_get(&p->endpoint, path, r->revision, "?blobs=true", pull_take_text, &text, &none, -1);
    if (status == OK)
        status = listing_read(&p->result->listing, p->arena, text.data ? text.data : "", text.size, r->name);
    buffer_free(&text);
    TRY(status);
    if (hub_is_commit(r->revision) && strcmp(r->revision, p->result->listing.commit) != 0)
        return fail(ERR_FORMAT, "%s: asked for commit %s, the server answers with %s: nothing was downloaded", r->name,
                    r->revision, p->result->listing.commit);
    TRY(listing_choose(&p->result->listing, r->include, r->name));
    const struct hub_file *index = listing_find(&p->result->listing, HUB_INDEX);
    if (index && index->wanted && index->size > LISTING_MAX) /* it comes before the disk's room is looked at */
        return fail(ERR_FORMAT, "%s: %s has more than %d MB in the server's list, which cannot be: nothing was downloaded",
                    r->name, HUB_INDEX, LISTING_MAX >> 20);
    return OK;
}

/* --- one file ----------------------------------------------------------------------------------------------------------- */

/* Forgets what there is of the file. */
static enum status start_over(struct job *job)
{
    job->pull->done -= job->have;
    job->have = 0;
    blob_begin(&job->sha, job->file->kind, job->file->size);
    return part_empty(&job->part);
}

static enum status pull_take_piece(void *context, const struct http_reply *reply, const char *bytes, int64_t count)
{
    struct job *job = context;
    if (!reply->received && reply->code == 200 && job->have) /* all of it, though a part was asked for */
        TRY(start_over(job));
    if (!reply->received && reply->code == 206 && reply->from != job->have)
        return fail(ERR_FORMAT, "%s: %s sends other bytes than those that were asked for", job->file->name, reply->host);
    if (count > job->file->size - job->have)
        return fail(ERR_FORMAT, "%s: %s sends more than the %lld bytes that it lists", job->file->name, reply->host,
                    (long long)job->file->size);
    TRY(part_append(&job->part, bytes, count));
    sha_add(&job->sha, bytes, count);
    job->have += count;
    job->pull->done += count;
    job->pull->result->downloaded_bytes += count;
    return pull_tell(job->pull, job->file->name);
}

/* What an earlier pull left of it. */
static enum status take_up(struct job *job)
{
    int64_t size;
    TRY(part_open(&job->part, job->part_path, &size));
    if (size > job->file->size)
        size = 0;
    char *piece = size ? arena_array(job->pull->arena, PIECE_BYTES, 1) : NULL;
    if (size && !piece)
        return ERR_MEMORY;
    TRY(size ? OK : part_empty(&job->part));
    blob_begin(&job->sha, job->file->kind, job->file->size);
    for (int64_t n; job->have < size; job->have += n) {
        n = min(PIECE_BYTES, size - job->have);
        TRY(part_read(&job->part, job->have, piece, n));
        sha_add(&job->sha, piece, n);
        job->pull->done += n;
        TRY(cancel_check());
    }
    return OK;
}

/* A part of wrong bytes is not left for a later pull; the message is the one that is set. */
static enum status pull_give_up(struct job *job, enum status status)
{
    fail_at(status, "%s: twice: ", job->pull->request->name);
    file_remove(job->part_path);
    return status;
}

static enum status download(struct job *job)
{
    const struct hub_file *file = job->file;
    struct pull *p = job->pull;
    const char *path = arena_format(p->arena, "/%s/resolve/%s/%s", p->request->name, p->result->listing.commit, file->name);
    if (!path)
        return ERR_MEMORY;
    TRY(take_up(job));
    for (int wrong = 0, shorts = 0;;) {
        enum status status = OK;
        int64_t before = job->have;
        if (job->have < file->size)
            status = endpoint_get(&p->endpoint, path, "", "", pull_take_piece, job, &job->have, file->size);
        if (status != OK && status != ERR_FORMAT)
            return status;
        if (status == OK && job->have == file->size && blob_ends(&job->sha, file->hash))
            return OK;
        shorts += job->have - before < SHORT_BYTES;
        if (status == OK && job->have > before && job->have < file->size && shorts < SHORT_MAX)
            continue; /* the server ended too soon, but some came */
        if (status == OK && job->have == file->size)
            status = fail(ERR_FORMAT, "%s: what was downloaded has another checksum than the hub lists", file->name);
        else if (status == OK)
            status = fail(ERR_FORMAT, "%s: the server sends fewer than the %lld bytes that it lists", file->name,
                          (long long)file->size);
        if (++wrong == WRONG_MAX)
            return pull_give_up(job, status);
        TRY(start_over(job));
    }
}

/* Whether the file is there, and right. In the cache a name is a checksum, which is believed once it was compared. */
static enum status is_there(struct job *job, bool *there)
{
    if (job->pull->request->output)
        return blob_compare(job->path, job->file, there);
    TRY(blob_check(job->pull->arena, job->path, job->file, there));
    if (!*there && file_exists(job->path))
        log_message(LOG_WARNING, "%s: its bytes are not those of its name, so %s is downloaded again", job->path,
                    job->file->name);
    return OK;
}

static enum status fail_taken(const char *path)
{
    return fail(ERR_ARGUMENT,
                "%s: exists, with other bytes than the model's: name another --output, or replace it with --overwrite", path);
}

/* What is in the output directory is somebody's; in the cache only a wrong blob gives way. */
static enum status pull_put(struct job *job)
{
    const struct pull_request *r = job->pull->request;
    char state[FILE_STATE];
    bool taken;
    TRY(part_commit(&job->part, job->path, !r->output || r->overwrite, &taken));
    if (taken)
        return fail_taken(job->path);
    TRY(part_state(&job->part, state));
    return r->output ? OK : blob_remember(job->pull->arena, job->file->hash, state);
}

static enum status complete(struct job *job)
{
    bool there = job->file->there;
    if (!there)
        TRY(is_there(job, &there));
    if (there) {
        job->pull->done += job->file->size;
        return pull_tell(job->pull, job->file->name);
    }
    enum status status = download(job);
    if (status == OK)
        status = pull_put(job);
    part_close(&job->part);
    return status;
}

/* Waits until no other process downloads this file. Where the file system has no locks, the checksum is what is left. */
static enum status take_lock(struct lock *lock, const char *path, const char *name)
{
    for (bool taken = false, said = false;; said = true) {
        enum status status = lock_take(lock, path, LOCK_ALONE, false, &taken);
        if (taken || status == ERR_UNSUPPORTED)
            return OK;
        TRY(status);
        if (!said)
            log_message(LOG_INFO, "waiting for another process that downloads %s", name);
        TRY(cancel_check());
        clock_wait(0.2);
    }
}

static enum status make_parent(const struct pull *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dir = arena_text(p->arena, path, slash - path);
    return dir ? directory_make_below(p->folder, dir) : ERR_MEMORY;
}

static enum status name_job(struct job *job)
{
    struct pull *p = job->pull;
    const struct hub_file *file = job->file;
    job->path = p->request->output ? file_join(p->arena, p->folder, file->name)
                                   : arena_format(p->arena, "%s/blobs/%s", p->folder, file->hash);
    if (job->path) /* in somebody's directory a file may have a name like the shorter one */
        job->part_path = p->request->output ? arena_format(p->arena, "%s.%.16s.incomplete", job->path, file->hash)
                                            : arena_format(p->arena, "%s.incomplete", job->path);
    return job->part_path ? OK : ERR_MEMORY;
}

static enum status get_file(struct pull *p, const struct hub_file *file)
{
    struct job job = {.pull = p, .file = file, .part = {.fd = -1}};
    struct lock lock = {-1};
    TRY(name_job(&job));
    TRY(make_parent(p, job.path));
    const char *lock_path = arena_format(p->arena, "%s/%s.lock", p->locks, file->hash);
    if (!lock_path)
        return ERR_MEMORY;
    TRY(take_lock(&lock, lock_path, file->name));
    enum status status = complete(&job);
    if (p->request->output && file_size(lock_path) == 0) /* a larger one is somebody's */
        file_remove(lock_path);
    lock_release(&lock);
    return status;
}

/* The wanted files; the index of weights first, for it names others. */
static enum status get_index(struct pull *p)
{
    struct hub_file *index = listing_find(&p->result->listing, HUB_INDEX);
    struct job job = {.pull = p, .file = index};
    struct buffer text = {0};
    if (!index || !index->wanted || p->request->include)
        return OK;
    TRY(get_file(p, index));
    TRY(name_job(&job));
    enum status status = file_read(&text, job.path, LISTING_MAX);
    if (status == OK)
        status = listing_add(&p->result->listing, text.data, text.size, HUB_INDEX);
    buffer_free(&text);
    p->done = 0;
    return status;
}

/* --- all of them -------------------------------------------------------------------------------------------------------- */

/* Whether a file in the output directory would have the name of another one's part or lock. */
static bool is_own_name(const char *name)
{
    size_t digits = strspn(name, "0123456789abcdef");
    return name_ends_with(name, ".incomplete") || (digits >= 40 && !strcmp(name + digits, ".lock"));
}

/* Before anything is written: what is in the output directory already, and what is in the way there. */
static enum status look_at_output(struct pull *p)
{
    const struct hub_listing *listing = &p->result->listing;
    for (int64_t i = 0; i < listing->count; i++) {
        struct hub_file *file = &listing->files[i];
        struct job job = {.pull = p, .file = file};
        if (!file->wanted || file->there)
            continue;
        TRY(name_job(&job));
        TRY(is_there(&job, &file->there));
        if (!file->there && !p->request->overwrite && !directory_is_free(job.path))
            return fail_taken(job.path);
    }
    return OK;
}

static enum status pull_count(struct pull *p)
{
    struct pull_result *r = p->result;
    int64_t missing = 0, room = directory_room(p->there);
    for (int64_t i = 0; i < r->listing.count; i++) {
        struct job job = {.pull = p, .file = &r->listing.files[i]};
        if (!job.file->wanted)
            continue;
        if (p->request->output && is_own_name(job.file->name))
            return fail(ERR_UNSUPPORTED,
                        "%s: hone gives names like %.100s to what is not complete: leave it out with --include, or "
                        "pull without --output",
                        p->request->name, job.file->name);
        TRY(name_job(&job));
        r->files++;
        if (__builtin_add_overflow(r->bytes, job.file->size, &r->bytes))
            return fail(ERR_FORMAT, "%s: sizes in the server's list that cannot be", p->request->name);
        if (file_size(job.path) != job.file->size)
            missing += max(job.file->size - max(file_size(job.part_path), 0), 0);
    }
    r->missing_bytes = missing;
    if (missing && room >= 0 && missing > room - SPACE_LEFT)
        return fail(ERR_IO, "%s: %.2f GB are to be downloaded, and %s has %.2f GB left: free some, or name another disk with %s",
                    p->request->name, 1e-9 * (double)missing, p->folder, 1e-9 * (double)room,
                    p->request->output ? "--output" : "HF_HUB_CACHE or --output");
    return OK;
}

/* The commit's directory, with a link for each file, and then the branch's name. */
static enum status pull_publish(struct pull *p)
{
    const struct hub_listing *listing = &p->result->listing;
    for (int64_t i = 0; i < listing->count; i++) {
        const struct hub_file *file = &listing->files[i];
        char up[3 * 64] = "";
        if (!file->wanted)
            continue;
        for (const char *slash = strchr(file->name, '/'); slash; slash = strchr(slash + 1, '/'))
            if (strlen(up) + 4 > sizeof up)
                return fail(ERR_FORMAT, "%s: a path with too many directories: %.100s", p->request->name, file->name);
            else
                strcat(up, "../");
        const char *path = arena_format(p->arena, "%s/%s", p->result->path, file->name);
        const char *blob = arena_format(p->arena, "%s../../blobs/%s", up, file->hash);
        if (!path || !blob)
            return ERR_MEMORY;
        TRY(make_parent(p, path));
        TRY(file_link(blob, path));
    }
    if (hub_is_commit(p->request->revision))
        return OK;
    const char *reference = arena_format(p->arena, "%s/refs/%s", p->folder, p->request->revision);
    if (!reference)
        return ERR_MEMORY;
    TRY(make_parent(p, reference));
    return file_replace(reference, listing->commit, (int64_t)strlen(listing->commit));
}

static enum status open_folder(struct pull *p)
{
    if (!p->request->dry)
        TRY(directory_make(p->folder));
    return directory_may_make(p->arena, p->folder, &p->there);
}

static enum status open_folders(struct pull *p)
{
    const struct pull_request *r = p->request;
    const char *cache = "";
    if (r->output) {
        p->folder = p->locks = p->result->path = r->output;
        return open_folder(p);
    }
    TRY(hub_cache(p->arena, &cache));
    p->folder = hub_folder(p->arena, cache, r->name);
    p->locks = p->folder ? arena_format(p->arena, "%s/.locks%s", cache, p->folder + strlen(cache)) : NULL;
    p->result->path = p->locks ? arena_format(p->arena, "%s/snapshots/%s", p->folder, p->result->listing.commit) : NULL;
    if (!p->result->path)
        return ERR_MEMORY;
    TRY(open_folder(p));
    return r->dry ? OK : directory_make_below(cache, p->locks);
}

static enum status pull_all(struct pull *p)
{
    struct pull_result *r = p->result;
    TRY(read_listing(p));
    TRY(open_folders(p));
    if (p->request->output)
        TRY(look_at_output(p));
    if (!p->request->dry)
        TRY(get_index(p));
    if (p->request->output)
        TRY(look_at_output(p)); /* those of the index, too */
    TRY(pull_count(p));
    if (p->request->dry)
        return OK;
    for (int64_t i = 0; i < r->listing.count; i++)
        if (r->listing.files[i].wanted)
            TRY(get_file(p, &r->listing.files[i]));
    return p->request->output ? OK : pull_publish(p);
}

enum status pull_model(const struct pull_request *request, struct arena *arena, struct pull_result *result)
{
    struct pull p = {.request = request, .result = result, .arena = arena};
    *result = (struct pull_result){0};
    if (!hub_is_name(request->name))
        return fail(ERR_ARGUMENT, "'%.100s' is not the name of a model: it looks like HuggingFaceTB/SmolLM2-135M-Instruct%s",
                    request->name, strstr(request->name, "://") ? ", the last two parts of a model's page" : "");
    if (!hub_is_below(request->revision))
        return fail(ERR_ARGUMENT, "--revision '%.100s' is not a branch, a tag or a commit", request->revision);
    enum status status = endpoint_open(&p.endpoint, arena, request->name, request->revision);
    if (status == OK)
        status = pull_all(&p);
    endpoint_close(&p.endpoint);
    if (status == ERR_STOPPED)
        return fail(status, "stopped; what was downloaded stays, and the same command goes on from there");
    return status;
}
