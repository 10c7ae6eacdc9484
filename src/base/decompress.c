/* gzip through zlib, zstd through libzstd.
 *
 * The idea: one step takes what is left of a chunk of the file and gives some of the content; what differs between the
 * formats is the step. A file may hold several packed parts, one after the other, as pigz, bgzip and pzstd write them.
 */
#include "base/decompress.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/memory.h"
#include "base/name.h"
#include "base/number.h"

enum { CHUNK = 128 * 1024, CONTENT_MAX = 8 << 20 }; /* CONTENT_MAX: bytes that every file may give */

enum packing { PLAIN, GZIP, ZSTD };

struct decompress {
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

static enum status decompress_broken(const struct decompress *d, const char *what)
{
    return fail(ERR_FORMAT, "%s: the %s data is broken at byte %lld of the file: %s; pack it again, or unpack what can be saved",
                d->path, d->packing == GZIP ? "gzip" : "zstd", (long long)(d->read - (d->end - d->begin)), what);
}

/* Compared with what was read so far, not with the file's size: a file may end with what costs nothing, as holes. Rows that all
 * have the same prompt of 25 kB, and little else, were measured to pack to a 114th by gzip and to a 630th by zstd, with one of
 * 100 kB to a 1,487th. */
static enum status check_ratio(const struct decompress *d)
{
    int64_t factor = d->packing == GZIP ? UNPACK_GZIP_FACTOR : UNPACK_ZSTD_FACTOR;
    if (d->packing == PLAIN || d->offset <= CONTENT_MAX || d->offset / factor <= d->read)
        return OK;
    return fail(
        ERR_LIMIT,
        "%s: its first %lld bytes unpack to more than %lld MB, over %lld times as much: a file like this is mostly made to "
        "do harm. If you trust it, unpack it (%s FILE) and name what comes out: that has no such limit",
        d->path, (long long)d->read, (long long)(d->offset >> 20), (long long)factor,
        d->packing == GZIP ? "gzip -dk" : "zstd -d --long=31");
}

static enum status decompress_fill(struct decompress *d)
{
    int64_t got;
    if (d->begin < d->end || d->last)
        return OK;
    TRY(reader_read(&d->reader, d->chunk, CHUNK, &got));
    d->begin = 0;
    d->end = got;
    d->read += got;
    hash_add(&d->hash, d->chunk, got);
    d->last = got < CHUNK;
    return OK;
}

static bool decompress_begins(const struct decompress *d, const char *magic, int64_t count)
{
    return d->end - d->begin >= count && memcmp(d->chunk + d->begin, magic, (size_t)count) == 0;
}

/* zstd has a second kind of part, without content: sixteen magic numbers that differ in their first byte. */
static bool begins_zstd(const struct decompress *d)
{
    return decompress_begins(d, "\x28\xb5\x2f\xfd", 4) || (d->end - d->begin >= 4 && (d->chunk[d->begin] & 0xf0) == 0x50 &&
                                                           memcmp(d->chunk + d->begin + 1, "\x2a\x4d\x18", 3) == 0);
}

static enum status decompress_start(struct decompress *d)
{
    TRY(decompress_fill(d));
    d->packing = decompress_begins(d, "\x1f\x8b", 2) ? GZIP : begins_zstd(d) ? ZSTD : PLAIN;
    if (d->packing == PLAIN && (name_ends_with(d->path, ".gz") || name_ends_with(d->path, ".zst")))
        return fail(ERR_FORMAT, "%s: it is not packed as its name says; rename it, or pack it", d->path);
    if (d->packing == GZIP) {
        if (inflateInit2(&d->gzip, 15 + 16) != Z_OK)
            return fail(ERR_MEMORY, "%s: out of memory for decompressing", d->path);
        d->gzip_open = true;
    }
    if (d->packing == ZSTD && !(d->zstd = ZSTD_createDCtx()))
        return fail(ERR_MEMORY, "%s: out of memory for decompressing", d->path);
    return OK;
}

enum status decompress_open(struct decompress **out, const char *path)
{
    *out = NULL;
    struct decompress *d = memory_alloc((int64_t)sizeof *d);
    if (!d)
        return ERR_MEMORY;
    d->reader.fd = -1;
    hash_init(&d->hash);
    d->path = memory_alloc((int64_t)strlen(path) + 1);
    d->chunk = memory_alloc(CHUNK);
    enum status status = d->path && d->chunk ? OK : ERR_MEMORY;
    if (status == OK) {
        strcpy(d->path, path);
        status = reader_open(&d->reader, d->path);
    }
    if (status == OK)
        status = decompress_start(d);
    if (status == OK)
        *out = d;
    else
        decompress_close(d);
    return status;
}

void decompress_close(struct decompress *d)
{
    if (!d)
        return;
    if (d->gzip_open)
        inflateEnd(&d->gzip);
    ZSTD_freeDCtx(d->zstd);
    reader_close(&d->reader);
    memory_free(d->chunk);
    memory_free(d->path);
    memory_free(d);
}

bool decompress_packed(const struct decompress *d)
{
    return d->packing != PLAIN;
}

static enum status step_gzip(struct decompress *d, char *bytes, int64_t max_bytes, int64_t *got)
{
    if (!d->inside) {
        while (d->begin < d->end && d->chunk[d->begin] == 0 && d->offset > 0) /* tapes are padded with zeros */
            d->begin++;
        if (d->begin == d->end)
            return OK;
        if (inflateReset(&d->gzip) != Z_OK)
            return decompress_broken(d, "the unpacker cannot restart");
        d->inside = true;
    }
    d->gzip.next_in = d->chunk + d->begin;
    d->gzip.avail_in = (uInt)(d->end - d->begin);
    d->gzip.next_out = (Bytef *)bytes;
    d->gzip.avail_out = (uInt)min(max_bytes, CHUNK);
    uInt room = d->gzip.avail_out;
    int code = inflate(&d->gzip, Z_NO_FLUSH);
    d->begin = d->end - d->gzip.avail_in;
    *got = room - d->gzip.avail_out;
    if (code == Z_STREAM_END)
        d->inside = false;
    else if (code == Z_MEM_ERROR)
        return fail(ERR_MEMORY, "%s: out of memory while decompressing", d->path);
    else if (code != Z_OK && code != Z_BUF_ERROR)
        return decompress_broken(d, d->gzip.msg ? d->gzip.msg : "no gzip");
    return OK;
}

static enum status step_zstd(struct decompress *d, char *bytes, int64_t max_bytes, int64_t *got)
{
    ZSTD_inBuffer in = {d->chunk + d->begin, (size_t)(d->end - d->begin), 0};
    ZSTD_outBuffer out = {bytes, (size_t)max_bytes, 0};
    size_t code = ZSTD_decompressStream(d->zstd, &out, &in);
    d->begin += (int64_t)in.pos;
    *got = (int64_t)out.pos;
    if (ZSTD_isError(code))
        return decompress_broken(d, ZSTD_getErrorName(code));
    d->inside = code != 0;
    return OK;
}

static enum status step(struct decompress *d, char *bytes, int64_t max_bytes, int64_t *got)
{
    *got = 0;
    if (d->packing == GZIP)
        return step_gzip(d, bytes, max_bytes, got);
    if (d->packing == ZSTD)
        return step_zstd(d, bytes, max_bytes, got);
    int64_t n = d->end - d->begin;
    *got = min(n, max_bytes);
    memcpy(bytes, d->chunk + d->begin, (size_t)*got);
    d->begin += *got;
    return OK;
}

enum status decompress_read(struct decompress *d, void *bytes, int64_t max_bytes, int64_t *got)
{
    for (*got = 0; *got < max_bytes;) {
        int64_t n;
        TRY(decompress_fill(d));
        bool nothing = d->begin == d->end;
        if (nothing && !d->inside)
            break;
        TRY(step(d, (char *)bytes + *got, max_bytes - *got, &n));
        if (nothing && n == 0 && d->inside) /* the whole file went in, and nothing comes out */
            return decompress_broken(d, "it breaks off in the middle");
        *got += n;
        d->offset += n;
        TRY(check_ratio(d));
    }
    return OK;
}

int64_t decompress_taken(const struct decompress *d)
{
    return d->read;
}

struct digest decompress_digest(const struct decompress *d)
{
    return hash_end(&d->hash);
}
