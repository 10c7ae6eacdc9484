/* Reading and writing minisign's files; the arithmetic is libsodium's. */
#include "base/minisign.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/code.h"
#include "base/file.h"
#include "base/library.h"
#include "base/mutex.h"

#define UNTRUSTED "untrusted comment: "
#define TRUSTED "trusted comment: "

enum { ALGORITHM = 2, ID = 8, SIGNATURE = 64, PUBLIC = 32, SECRET = 64, CHECK = 32, HASH = 64, PUBLIC_TEXT = 56 };

/* --- libsodium ------------------------------------------------------------------------------------------------------------ */

#define SODIUM_SYMBOLS(SYMBOL)                                                                                                   \
    SYMBOL(int, sodium_init, (void))                                                                                             \
    SYMBOL(int, crypto_sign_ed25519_seed_keypair, (unsigned char *public, unsigned char *secret, const unsigned char *seed))     \
    SYMBOL(int, crypto_sign_ed25519_detached,                                                                                    \
           (unsigned char *signature, unsigned long long *size, const unsigned char *bytes, unsigned long long count,            \
            const unsigned char *secret))                                                                                        \
    SYMBOL(int, crypto_sign_ed25519_verify_detached,                                                                             \
           (const unsigned char *signature, const unsigned char *bytes, unsigned long long count, const unsigned char *key))     \
    SYMBOL(int, crypto_generichash,                                                                                              \
           (unsigned char *out, size_t size, const unsigned char *bytes, unsigned long long count, const unsigned char *key,     \
            size_t key_size))

static struct {
#define SYMBOL(result, name, arguments) result(*name) arguments;
    SODIUM_SYMBOLS(SYMBOL)
#undef SYMBOL
} sodium;

static enum status minisign_load(void)
{
    const char *own = code_variable("HONE_SODIUM_LIBRARY"), *why = "";
    const char *const names[] = {own ? own : "libsodium.so.23", own ? NULL : "libsodium.so.26", NULL};
    void *library = library_open(names, &why);
    if (!library)
        return fail(
            ERR_UNSUPPORTED,
            "libsodium, which --sign and --verify-key need, is not on this machine (%s): install it (Debian: libsodium23)", why);
#define SYMBOL(result, name, arguments)                                                                                          \
    *(void **)&sodium.name = library_symbol(library, #name);                                                                     \
    if (!sodium.name)                                                                                                            \
        return fail(ERR_UNSUPPORTED, "%s has no " #name ": signing needs libsodium 1.0.12 or later", names[0]);
    SODIUM_SYMBOLS(SYMBOL)
#undef SYMBOL
    return sodium.sodium_init() < 0 ? fail(ERR_UNSUPPORTED, "libsodium does not start") : OK;
}

static enum status minisign_load_once(void)
{
    static struct mutex turn = MUTEX_FREE;
    static bool loaded;
    mutex_take(&turn);
    enum status status = loaded ? OK : minisign_load();
    loaded = status == OK;
    mutex_give(&turn);
    return status;
}

static bool verifies(const uint8_t *signature, const void *bytes, int64_t count, const uint8_t *key)
{
    return sodium.crypto_sign_ed25519_verify_detached(signature, bytes, (unsigned long long)count, key) == 0;
}

/* --- lines ---------------------------------------------------------------------------------------------------------------- */

/* A text that is gone through line by line. */
struct lines {
    const char *at;
    int64_t left;
};

/* The next line without its end, and false if there is none. A zero byte is in no line. */
static bool minisign_next_line(struct lines *lines, const char **line, int64_t *size)
{
    const char *end = memchr(lines->at, '\n', (size_t)lines->left);
    int64_t whole = end ? end + 1 - lines->at : lines->left;
    *line = lines->at;
    *size = end ? end - lines->at : whole;
    lines->at += whole;
    lines->left -= whole;
    *size -= *size && (*line)[*size - 1] == '\r';
    return whole > 0 && !memchr(*line, 0, (size_t)*size);
}

static bool minisign_begins(const char *line, int64_t size, const char *with)
{
    return size >= (int64_t)strlen(with) && !memcmp(line, with, strlen(with));
}

/* An untrusted comment and then this many bytes in base64. */
static bool minisign_read_head(struct lines *lines, void *bytes, int64_t count)
{
    const char *line;
    int64_t size;
    return minisign_next_line(lines, &line, &size) && minisign_begins(line, size, UNTRUSTED) &&
           minisign_next_line(lines, &line, &size) && base64_decode(line, size, bytes, count);
}

void minisign_id(const uint8_t id[static 8], char text[static MINISIGN_ID_TEXT])
{
    for (int i = 0; i < ID; i++)
        snprintf(text + (ptrdiff_t)2 * i, 3, "%02X", id[ID - 1 - i]);
}

/* --- signatures ----------------------------------------------------------------------------------------------------------- */

struct signed_bytes {
    char algorithm[ALGORITHM];
    uint8_t id[ID], signature[SIGNATURE];
};

enum status minisign_parse(struct minisign_signature *s, const char *text, int64_t size, const char *where)
{
    struct lines lines = {text, size};
    struct signed_bytes head;
    const char *line;
    int64_t length;
    *s = (struct minisign_signature){0};
    bool whole = size <= MINISIGN_BYTES_MAX && minisign_read_head(&lines, &head, (int64_t)sizeof head) &&
                 minisign_next_line(&lines, &s->comment, &s->comment_size) &&
                 minisign_begins(s->comment, s->comment_size, TRUSTED) && minisign_next_line(&lines, &line, &length) &&
                 base64_decode(line, length, s->global, SIGNATURE) && !lines.left;
    if (!whole)
        return fail(ERR_FORMAT, "%s: is not a signature of minisign, or not a whole one", where);
    s->comment += strlen(TRUSTED);
    s->comment_size -= (int64_t)strlen(TRUSTED);
    s->hashed = !memcmp(head.algorithm, "ED", ALGORITHM);
    memcpy(s->id, head.id, ID);
    memcpy(s->signature, head.signature, SIGNATURE);
    return s->hashed || !memcmp(head.algorithm, "Ed", ALGORITHM)
               ? OK
               : fail(ERR_UNSUPPORTED, "%s: a signature of another kind than Ed25519", where);
}

/* What the second signature is of. */
static enum status join_comment(struct buffer *joined, const uint8_t *signature, const char *comment, int64_t size)
{
    TRY(buffer_append(joined, signature, SIGNATURE));
    return buffer_append(joined, comment, size);
}

static enum status hash(const void *bytes, int64_t count, uint8_t out[static HASH])
{
    return sodium.crypto_generichash(out, HASH, bytes, (unsigned long long)count, NULL, 0) == 0
               ? OK
               : fail(ERR_INTERNAL, "libsodium cannot hash %lld bytes", (long long)count);
}

static enum status check_both(const struct minisign_public *key, const struct minisign_signature *s, const void *bytes,
                              int64_t count, const struct buffer *joined, const char *where)
{
    uint8_t hashed[HASH];
    TRY(hash(bytes, count, hashed));
    if (!verifies(s->signature, s->hashed ? hashed : bytes, s->hashed ? HASH : count, key->key))
        return fail(ERR_FORMAT, "%s: the signature is not of these bytes, or not by this key", where);
    return verifies(s->global, joined->data, joined->size, key->key)
               ? OK
               : fail(ERR_FORMAT, "%s: its trusted comment was changed after it was signed", where);
}

enum status minisign_check(const struct minisign_public *key, const struct minisign_signature *s, const void *bytes,
                           int64_t count, const char *where)
{
    char of[MINISIGN_ID_TEXT], wanted[MINISIGN_ID_TEXT];
    struct buffer joined = {0};
    minisign_id(s->id, of);
    minisign_id(key->id, wanted);
    if (memcmp(s->id, key->id, ID) != 0)
        return fail(ERR_FORMAT, "%s: is by the key %s, and not by %s", where, of, wanted);
    TRY(minisign_load_once());
    enum status status = join_comment(&joined, s->signature, s->comment, s->comment_size);
    if (status == OK)
        status = check_both(key, s, bytes, count, &joined, where);
    buffer_free(&joined);
    return status;
}

/* --- keys ----------------------------------------------------------------------------------------------------------------- */

struct public_bytes {
    char algorithm[ALGORITHM];
    uint8_t id[ID], key[PUBLIC];
};

static enum status take_public(struct minisign_public *key, const struct public_bytes *from, const char *where)
{
    if (memcmp(from->algorithm, "Ed", ALGORITHM) != 0)
        return fail(ERR_UNSUPPORTED, "%s: a key of another kind than minisign's Ed25519", where);
    memcpy(key->id, from->id, ID);
    memcpy(key->key, from->key, PUBLIC);
    return OK;
}

enum status minisign_public_read(struct minisign_public *key, const char *given)
{
    struct public_bytes bytes;
    struct buffer text = {0};
    if (strlen(given) == PUBLIC_TEXT && base64_decode(given, PUBLIC_TEXT, &bytes, (int64_t)sizeof bytes))
        return take_public(key, &bytes, "--verify-key");
    enum status status = file_read(&text, given, MINISIGN_BYTES_MAX);
    struct lines lines = {text.data, text.size};
    if (status == OK && !(text.size && minisign_read_head(&lines, &bytes, (int64_t)sizeof bytes) && !lines.left))
        status = fail(ERR_FORMAT, "%s: is not a public key of minisign: two lines, as minisign -G writes them", given);
    if (status == OK)
        status = take_public(key, &bytes, given);
    buffer_free(&text);
    return status;
}

/* As minisign keeps it. The secret's second half is the public key. */
struct secret_bytes {
    char algorithm[ALGORITHM], derivation[ALGORITHM], check_algorithm[ALGORITHM];
    uint8_t salt[32], operations[8], memory[8];
    uint8_t id[ID], secret[SECRET], check[CHECK];
};

struct minisign_key {
    struct secret_bytes bytes;
};

/* The two halves belong together: a signature with another public half would tell the secret one. minisign -W leaves the check
 * that it keeps next to them empty. */
static enum status check_secret(const struct secret_bytes *b, const char *path)
{
    uint8_t public[PUBLIC], secret[SECRET];
    int failed = sodium.crypto_sign_ed25519_seed_keypair(public, secret, b->secret);
    explicit_bzero(secret, sizeof secret);
    return !failed && !memcmp(public, b->secret + SECRET - PUBLIC, PUBLIC)
               ? OK
               : fail(ERR_FORMAT, "%s: is damaged: its two halves do not belong together", path);
}

static enum status take_secret(const struct secret_bytes *b, const char *path)
{
    static const char none[ALGORITHM];
    if (memcmp(b->algorithm, "Ed", ALGORITHM) != 0 || memcmp(b->check_algorithm, "B2", ALGORITHM) != 0)
        return fail(ERR_UNSUPPORTED, "%s: a key of another kind than minisign's Ed25519", path);
    if (memcmp(b->derivation, none, ALGORITHM) != 0)
        return fail(ERR_UNSUPPORTED,
                    "%s: is protected by a password, and a run asks nobody: make a key for runs by minisign -G -W, or take the "
                    "password off a copy of this one by minisign -C -W -s COPY",
                    path);
    TRY(minisign_load_once());
    return check_secret(b, path);
}

static enum status minisign_read_secret(struct secret_bytes *b, const char *path)
{
    struct buffer text = {0};
    enum status status = file_read(&text, path, MINISIGN_BYTES_MAX);
    struct lines lines = {text.data, text.size};
    if (status == OK && !(text.size && minisign_read_head(&lines, b, (int64_t)sizeof *b) && !lines.left))
        status = fail(ERR_FORMAT, "%s: is not a secret key of minisign: two lines, as minisign -G -W writes them", path);
    if (text.data)
        explicit_bzero(text.data, (size_t)text.capacity);
    buffer_free(&text);
    return status == OK ? take_secret(b, path) : status;
}

enum status minisign_key_open(struct minisign_key **out, const char *path)
{
    struct minisign_key *key = memory_alloc(sizeof *key);
    *out = NULL;
    if (!key)
        return ERR_MEMORY;
    enum status status = minisign_read_secret(&key->bytes, path);
    if (status == OK)
        *out = key;
    else
        minisign_key_close(key);
    return status;
}

struct minisign_public minisign_public_of(const struct minisign_key *key)
{
    struct minisign_public public;
    memcpy(public.id, key->bytes.id, ID);
    memcpy(public.key, key->bytes.secret + SECRET - PUBLIC, PUBLIC);
    return public;
}

void minisign_key_close(struct minisign_key *key)
{
    if (key)
        explicit_bzero(key, sizeof *key);
    memory_free(key);
}

/* --- signing -------------------------------------------------------------------------------------------------------------- */

/* A signature that does not hold is never given away: a fault of the processor in it could tell the key. */
static enum status sign_bytes(const struct minisign_key *key, const void *bytes, int64_t count, uint8_t out[static SIGNATURE])
{
    const uint8_t *secret = key->bytes.secret;
    return sodium.crypto_sign_ed25519_detached(out, NULL, bytes, (unsigned long long)count, secret) == 0 &&
                   verifies(out, bytes, count, secret + SECRET - PUBLIC)
               ? OK
               : fail(ERR_COMPUTE, "a signature was made that does not hold: the key is damaged, or this machine");
}

static enum status sign(const struct minisign_key *key, const void *bytes, int64_t count, const char *comment,
                        struct buffer *joined, struct buffer *text)
{
    struct signed_bytes head = {.algorithm = {'E', 'D'}};
    uint8_t hashed[HASH], global[SIGNATURE];
    char id[MINISIGN_ID_TEXT];
    memcpy(head.id, key->bytes.id, ID);
    minisign_id(head.id, id);
    TRY(hash(bytes, count, hashed));
    TRY(sign_bytes(key, hashed, HASH, head.signature));
    TRY(join_comment(joined, head.signature, comment, (int64_t)strlen(comment)));
    TRY(sign_bytes(key, joined->data, joined->size, global));
    TRY(buffer_format(text, UNTRUSTED "signature by hone with minisign key %s\n", id));
    TRY(base64_append(text, &head, (int64_t)sizeof head));
    TRY(buffer_format(text, "\n" TRUSTED "%s\n", comment));
    TRY(base64_append(text, global, SIGNATURE));
    return buffer_append(text, "\n", 1);
}

enum status minisign_sign(const struct minisign_key *key, const void *bytes, int64_t count, const char *comment,
                          struct buffer *text)
{
    struct buffer joined = {0};
    enum status status = sign(key, bytes, count, comment, &joined, text);
    buffer_free(&joined);
    return status;
}
