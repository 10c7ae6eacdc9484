/* Blocks of bytes that are decompressed whole, into a place whose size is known. */
#ifndef BASE_CODEC_H
#define BASE_CODEC_H

#include <stdint.h>

#include "base/status.h"

enum codec { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_ZSTD };

/* Exactly `size` bytes. ERR_FORMAT if the block is broken or has another size, ERR_UNSUPPORTED if libsnappy, which is opened at
 * run time, is not on this machine; the caller adds the place before the message. Sizes are below 2 GB. */
enum status codec_decompress(enum codec codec, const void *packed, int64_t packed_size, void *bytes, int64_t size);

/* The CRC-32 of gzip. */
uint32_t codec_crc32(const void *bytes, int64_t count);

#endif
