/* The input is a record of a folder, a signature of it and a public key, with zero bytes between them. Whatever they are, no file
 * of a list is elsewhere, and what is taken for signed is signed by that key. */
#include <string.h>

#include "base/base64.h"
#include "base/minisign.h"
#include "format/provenance.h"
#include "fuzz.h"

static void look_at_record(struct fuzz_part input)
{
    json_t *record;
    size_t i;
    const json_t *entry;
    if (provenance_parse(&record, (const char *)input.data, (int64_t)input.size, "record") != OK) {
        PROMISE(!record);
        return;
    }
    fuzz_accept();
    json_array_foreach(json_object_get(record, "files"), i, entry)
    {
        enum provenance_by by;
        const char *name = json_string_value(json_object_get(entry, "name")), *digest = provenance_digest(entry, &by);
        PROMISE(name && *name && !strchr(name, '/') && strcmp(name, "..") != 0 && !provenance_is_file(name));
        PROMISE(by == PROVENANCE_SIZE ? !digest : strlen(digest) == (by == PROVENANCE_SHA256 ? 64 : 32));
    }
    json_decref(record);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {data, size}, record = fuzz_next(&rest), signature = fuzz_next(&rest);
    struct minisign_signature s;
    struct minisign_public key;
    struct minisign_key *secret;
    look_at_record(record);
    bool parsed = minisign_parse(&s, (const char *)signature.data, (int64_t)signature.size, "signature") == OK;
    if (parsed)
        PROMISE(s.comment >= (const char *)signature.data &&
                s.comment + s.comment_size <= (const char *)signature.data + signature.size);
    const char *path = fuzz_put("key", rest.data, rest.size);
    if (minisign_public_read(&key, path) == OK && parsed &&
        minisign_check(&key, &s, record.data, (int64_t)record.size, "signature") == OK)
        PROMISE(!memcmp(key.id, s.id, sizeof key.id));
    if (minisign_key_open(&secret, path) == OK)
        minisign_key_close(secret);
}
