/* gzip through zlib, zstd through libzstd.
 *
 * The idea: one step takes what is left of a chunk of the file and gives some of the content; what differs between the
 * formats is the step. A file may hold several packed parts, one after the other, as pigz, bgzip and pzstd write them.
 */
#include "base/unpack.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/memory.h"
#include "base/name.h"
#include "base/number.h"

enum { CHUNK = 128 * 1024, CONTENT_MAX = 8 << 20 }; /* CONTENT_MAX: bytes that every file may give */

enum packing { PLAIN, GZIP, ZSTD };

struct unpack {
    struct reader reader;
    char *path;
    enum packing packing;
    uint8_t *chunk; /* bytes of the file: [begin, end) are not yet used */
    int64_t begin, end;
    int64_t read;     /* bytes of the file before chunk[end] */
    int64_t offset;   /* bytes of the content handed out so far */
    struct hash hash; /* of those */
    bool last;        /* the file has no more chunks */
    bool inside;      /* of a packed part that has not ended */
    z_stream gzip;
    bool gzip_open;
    ZSTD_DCtx *zstd;
};

static enum status broken(const struct unpack *u, const char *what)
{
    return fail(ERR_FORMAT, "%s: the %s data is broken at byte %lld of the file: %s; pack it again, or unpack what can be saved",
                u->path, u->packing == GZIP ? "gzip" : "zstd", (long long)(u->read - (u->end - u->begin)), what);
}

/* Compared with what was read so far, not with the file's size: a file may end with what costs nothing, as holes. Rows that all
 * have the same prompt of 25 kB, and little else, were measured to pack to a 114th by gzip and to a 630th by zstd, with one of
 * 100 kB to a 1,487th. */
static enum status check_ratio(const struct unpack *u)
{
    int64_t factor = u->packing == GZIP ? UNPACK_GZIP_FACTOR : UNPACK_ZSTD_FACTOR;
    if (u->packing == PLAIN || u->offset <= CONTENT_MAX || u->offset / factor <= u->read)
        return OK;
    return fail(
        ERR_LIMIT,
        "%s: its first %lld bytes unpack to more than %lld MB, over %lld times as much: a file like this is mostly made to "
        "do harm. If you trust it, unpack it (%s FILE) and name what comes out: that has no such limit",
        u->path, (long long)u->read, (long long)(u->offset >> 20), (long long)factor,
        u->packing == GZIP ? "gzip -dk" : "zstd -d --long=31");
}

static enum status fill(struct unpack *u)
{
    int64_t got;
    if (u->begin < u->end || u->last)
        return OK;
    TRY(reader_read(&u->reader, u->chunk, CHUNK, &got));
    u->begin = 0;
    u->end = got;
    u->read += got;
    hash_add(&u->hash, u->chunk, got);
    u->last = got < CHUNK;
    return OK;
}

static bool begins(const struct unpack *u, const char *magic, int64_t count)
{
    return u->end - u->begin >= count && memcmp(u->chunk + u->begin, magic, (size_t)count) == 0;
}

/* zstd has a second kind of part, without content: sixteen magic numbers that differ in their first byte. */
static bool begins_zstd(const struct unpack *u)
{
    return begins(u, "\x28\xb5\x2f\xfd", 4) || (u->end - u->begin >= 4 && (u->chunk[u->begin] & 0xf0) == 0x50 &&
                                                memcmp(u->chunk + u->begin + 1, "\x2a\x4d\x18", 3) == 0);
}

static enum status start(struct unpack *u)
{
    TRY(fill(u));
    u->packing = begins(u, "\x1f\x8b", 2) ? GZIP : begins_zstd(u) ? ZSTD : PLAIN;
    if (u->packing == PLAIN && (name_ends_with(u->path, ".gz") || name_ends_with(u->path, ".zst")))
        return fail(ERR_FORMAT, "%s: it is not packed as its name says; rename it, or pack it", u->path);
    if (u->packing == GZIP) {
        if (inflateInit2(&u->gzip, 15 + 16) != Z_OK)
            return fail(ERR_MEMORY, "%s: out of memory for unpacking", u->path);
        u->gzip_open = true;
    }
    if (u->packing == ZSTD && !(u->zstd = ZSTD_createDCtx()))
        return fail(ERR_MEMORY, "%s: out of memory for unpacking", u->path);
    return OK;
}

enum status unpack_open(struct unpack **out, const char *path)
{
    *out = NULL;
    struct unpack *u = memory_alloc((int64_t)sizeof *u);
    if (!u)
        return ERR_MEMORY;
    u->reader.fd = -1;
    hash_init(&u->hash);
    u->path = memory_alloc((int64_t)strlen(path) + 1);
    u->chunk = memory_alloc(CHUNK);
    enum status status = u->path && u->chunk ? OK : ERR_MEMORY;
    if (status == OK) {
        strcpy(u->path, path);
        status = reader_open(&u->reader, u->path);
    }
    if (status == OK)
        status = start(u);
    if (status == OK)
        *out = u;
    else
        unpack_close(u);
    return status;
}

void unpack_close(struct unpack *u)
{
    if (!u)
        return;
    if (u->gzip_open)
        inflateEnd(&u->gzip);
    ZSTD_freeDCtx(u->zstd);
    reader_close(&u->reader);
    memory_free(u->chunk);
    memory_free(u->path);
    memory_free(u);
}

bool unpack_packed(const struct unpack *u)
{
    return u->packing != PLAIN;
}

static enum status step_gzip(struct unpack *u, char *bytes, int64_t max_bytes, int64_t *got)
{
    if (!u->inside) {
        while (u->begin < u->end && u->chunk[u->begin] == 0 && u->offset > 0) /* tapes are padded with zeros */
            u->begin++;
        if (u->begin == u->end)
            return OK;
        if (inflateReset(&u->gzip) != Z_OK)
            return broken(u, "the unpacker cannot restart");
        u->inside = true;
    }
    u->gzip.next_in = u->chunk + u->begin;
    u->gzip.avail_in = (uInt)(u->end - u->begin);
    u->gzip.next_out = (Bytef *)bytes;
    u->gzip.avail_out = (uInt)min(max_bytes, CHUNK);
    uInt room = u->gzip.avail_out;
    int code = inflate(&u->gzip, Z_NO_FLUSH);
    u->begin = u->end - u->gzip.avail_in;
    *got = room - u->gzip.avail_out;
    if (code == Z_STREAM_END)
        u->inside = false;
    else if (code == Z_MEM_ERROR)
        return fail(ERR_MEMORY, "%s: out of memory while unpacking", u->path);
    else if (code != Z_OK && code != Z_BUF_ERROR)
        return broken(u, u->gzip.msg ? u->gzip.msg : "no gzip");
    return OK;
}

static enum status step_zstd(struct unpack *u, char *bytes, int64_t max_bytes, int64_t *got)
{
    ZSTD_inBuffer in = {u->chunk + u->begin, (size_t)(u->end - u->begin), 0};
    ZSTD_outBuffer out = {bytes, (size_t)max_bytes, 0};
    size_t code = ZSTD_decompressStream(u->zstd, &out, &in);
    u->begin += (int64_t)in.pos;
    *got = (int64_t)out.pos;
    if (ZSTD_isError(code))
        return broken(u, ZSTD_getErrorName(code));
    u->inside = code != 0;
    return OK;
}

static enum status step(struct unpack *u, char *bytes, int64_t max_bytes, int64_t *got)
{
    *got = 0;
    if (u->packing == GZIP)
        return step_gzip(u, bytes, max_bytes, got);
    if (u->packing == ZSTD)
        return step_zstd(u, bytes, max_bytes, got);
    int64_t n = u->end - u->begin;
    *got = min(n, max_bytes);
    memcpy(bytes, u->chunk + u->begin, (size_t)*got);
    u->begin += *got;
    return OK;
}

enum status unpack_read(struct unpack *u, void *bytes, int64_t max_bytes, int64_t *got)
{
    for (*got = 0; *got < max_bytes;) {
        int64_t n;
        TRY(fill(u));
        bool nothing = u->begin == u->end;
        if (nothing && !u->inside)
            break;
        TRY(step(u, (char *)bytes + *got, max_bytes - *got, &n));
        if (nothing && n == 0 && u->inside) /* the whole file went in, and nothing comes out */
            return broken(u, "it breaks off in the middle");
        *got += n;
        u->offset += n;
        TRY(check_ratio(u));
    }
    return OK;
}

int64_t unpack_taken(const struct unpack *u)
{
    return u->read;
}

struct digest unpack_digest(const struct unpack *u)
{
    return hash_end(&u->hash);
}
