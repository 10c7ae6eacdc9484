/* Signatures in minisign's format, by libsodium, which is opened at run time: nothing but signing and checking needs it.
 *
 *     untrusted comment: anything
 *     base64 of: "ED" (of the bytes' BLAKE2b) or "Ed" (of the bytes), the key's id, the Ed25519 signature
 *     trusted comment: text
 *     base64 of: the signature of the signature and the text
 *
 * The program minisign reads what is written here, and writes what is read here. HONE_SODIUM_LIBRARY names another libsodium.
 */
#ifndef BASE_MINISIGN_H
#define BASE_MINISIGN_H

#include "base/memory.h"

enum { MINISIGN_ID_TEXT = 17, MINISIGN_BYTES_MAX = 16 << 10 }; /* as people see an id; of a file of keys, or of a signature */

struct minisign_public {
    uint8_t id[8], key[32];
};

struct minisign_signature {
    uint8_t id[8], signature[64], global[64];
    bool hashed;
    const char *comment; /* the trusted one, in the caller's text; printable ASCII or UTF-8 of a stranger */
    int64_t comment_size;
};

/* A key to sign with. */
struct minisign_key;

/* Reads a file of minisign -G -W. One with a password is refused: nobody may be there to type it. The memory is wiped by
 * _close, which accepts NULL. */
enum status minisign_key_open(struct minisign_key **key, const char *path);
void minisign_key_close(struct minisign_key *key);

/* The public half of a key to sign with. */
struct minisign_public minisign_public_of(const struct minisign_key *key);

/* Appends the text of a signature. The same key, bytes and comment give the same text. `comment` is one line. */
enum status minisign_sign(const struct minisign_key *key, const void *bytes, int64_t count, const char *comment,
                          struct buffer *text);

/* Reads a public key: the 56 characters themselves, or a file of minisign -G that has them. */
enum status minisign_public_read(struct minisign_public *key, const char *text_or_path);

/* Reads a signature, and checks nothing but its form. `where` names it in messages. */
enum status minisign_parse(struct minisign_signature *signature, const char *text, int64_t size, const char *where);

/* OK only if the key made the signature of these bytes, and of the comment; ERR_FORMAT if not, ERR_UNSUPPORTED without libsodium.
 */
enum status minisign_check(const struct minisign_public *key, const struct minisign_signature *signature, const void *bytes,
                           int64_t count, const char *where);

/* An id as minisign prints it. */
void minisign_id(const uint8_t id[static 8], char text[static MINISIGN_ID_TEXT]);

#endif
