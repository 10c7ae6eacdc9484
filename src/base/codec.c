/* gzip through zlib, zstd through libzstd, and Snappy through the C interface of libsnappy, if it is there. */
#include "base/codec.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/code.h"
#include "base/library.h"

static enum status codec_broken(const char *name, const char *what)
{
    return fail(ERR_FORMAT, "the %s block is broken: %s", name, what);
}

static enum status decompress_zstd(const void *packed, int64_t packed_size, void *bytes, int64_t size)
{
    size_t got = ZSTD_decompress(bytes, (size_t)size, packed, (size_t)packed_size);
    if (ZSTD_isError(got) && ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation)
        return fail(ERR_MEMORY, "out of memory for decompressing");
    if (ZSTD_isError(got))
        return codec_broken("zstd", ZSTD_getErrorName(got));
    return got == (size_t)size ? OK : codec_broken("zstd", "it has another size");
}

static enum status decompress_gzip(const void *packed, int64_t packed_size, void *bytes, int64_t size)
{
    z_stream z = {.next_in = (Bytef *)packed, .avail_in = (uInt)packed_size, .next_out = bytes, .avail_out = (uInt)size};
    if (inflateInit2(&z, 15 + 32) != Z_OK) /* 32: gzip's header or zlib's */
        return fail(ERR_MEMORY, "out of memory for decompressing");
    int code = inflate(&z, Z_FINISH);
    bool whole = code == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    if (code == Z_MEM_ERROR)
        return fail(ERR_MEMORY, "out of memory for decompressing");
    return whole ? OK : codec_broken("gzip", code == Z_DATA_ERROR ? "no gzip" : "it has another size");
}

/* The loader counts how often a library is opened: opening it for each block costs microseconds, and needs no state. */
static enum status decompress_snappy(const void *packed, int64_t packed_size, void *bytes, int64_t size)
{
    const char *own = code_variable("HONE_SNAPPY_LIBRARY"), *why = "";
    const char *const names[] = {own ? own : "libsnappy.so.1", NULL};
    void *library = library_open(names, &why);
    if (!library)
        return fail(
            ERR_UNSUPPORTED,
            "it is packed by Snappy, and the library for it cannot be opened (%s); install it: apt-get install libsnappy1v5",
            why);
    int (*uncompress)(const char *, size_t, char *, size_t *);
    *(void **)&uncompress = library_symbol(library, "snappy_uncompress");
    if (!uncompress)
        return fail(ERR_UNSUPPORTED, "%s: it has no snappy_uncompress", names[0]);
    size_t got = (size_t)size;
    return uncompress(packed, (size_t)packed_size, bytes, &got) == 0 && got == (size_t)size
               ? OK
               : codec_broken("Snappy", "no Snappy, or of another size");
}

enum status codec_decompress(enum codec codec, const void *packed, int64_t packed_size, void *bytes, int64_t size)
{
    switch (codec) {
    case CODEC_SNAPPY: return decompress_snappy(packed, packed_size, bytes, size);
    case CODEC_GZIP: return decompress_gzip(packed, packed_size, bytes, size);
    case CODEC_ZSTD: return decompress_zstd(packed, packed_size, bytes, size);
    case CODEC_NONE: break;
    }
    if (packed_size != size)
        return codec_broken("unpacked", "it has another size");
    memcpy(bytes, packed, (size_t)size);
    return OK;
}

uint32_t codec_crc32(const void *bytes, int64_t count)
{
    return (uint32_t)crc32_z(0, bytes, (z_size_t)count);
}
