/* SHA-1 and SHA-256 over bytes that come in pieces: the names of files in git and in Git LFS, and so on the Hugging Face hub. */
#ifndef BASE_SHA_H
#define BASE_SHA_H

#include <stdint.h>

enum sha_kind { SHA_1, SHA_256 };

/* A hash in the making. Lives anywhere, allocates nothing, needs no release. */
struct sha {
    enum sha_kind kind;
    uint32_t state[8];
    uint64_t count; /* bytes so far */
    uint8_t block[64];
};

enum { SHA_TEXT = 65 }; /* 40 or 64 hexadecimal digits and a zero byte */

void sha_init(struct sha *sha, enum sha_kind kind);
void sha_add(struct sha *sha, const void *bytes, int64_t count);
void sha_add_unseen(struct sha *sha, const void *bytes,
                    int64_t count);                        /* makes no progress (base/heartbeat.h): for a thread that watches */
void sha_end(struct sha *sha, char text[static SHA_TEXT]); /* lower-case digits; the hash is used up */

#endif
