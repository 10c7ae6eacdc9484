/* Comparing files with the record of their folder, and the record with its signature. */
#include <string.h>

#include "base/file.h"
#include "base/minisign.h"
#include "format/provenance.h"

static const char *provenance_check_name_of(const json_t *entry)
{
    return json_string_value(json_object_get(entry, "name"));
}

bool provenance_lists(const json_t *record, const char *name)
{
    const json_t *files = json_object_get(record, "files");
    for (size_t i = 0; i < json_array_size(files); i++)
        if (!strcmp(provenance_check_name_of(json_array_get(files, i)), name))
            return true;
    return false;
}

enum status provenance_compare(const char *path, const json_t *entry, bool signed_for, const char **state)
{
    static const char *const states[] = {"intact", "intact by xxh128", "of the right size"};
    struct provenance_file f = {.name = "", .path = path, .by = PROVENANCE_SIZE};
    char digest[HASH_TEXT];
    enum provenance_by by;
    const char *wanted = provenance_digest(entry, &by);
    *state = "missing";
    if (file_is_missing(path))
        return fail(ERR_FORMAT, "%s: is missing, but provenance.json names it", path);
    *state = "changed";
    TRY(provenance_hash(&f, 1));
    bool same = f.bytes == json_integer_value(json_object_get(entry, "bytes"));
    f.by = by;
    if (same)
        TRY(provenance_hash(&f, 1));
    digest_text(f.digest, digest);
    if (!same || (wanted && strcmp(wanted, by == PROVENANCE_SHA256 ? f.sha256 : digest) != 0))
        return fail(ERR_FORMAT, "%s: was changed: its checksum is not the one in provenance.json", path);
    *state = states[by];
    return by != PROVENANCE_SHA256 && signed_for
               ? fail(ERR_FORMAT, "%s: the record has no SHA-256 of it, so that the signature does not cover it", path)
               : OK;
}

static enum status provenance_check_signature(const char *path, const struct buffer *record, const struct minisign_public *key)
{
    struct buffer text = {0};
    struct minisign_signature s;
    if (!file_exists(path))
        return fail(ERR_FORMAT, "%s: is missing: this is not signed", path);
    enum status status = file_read(&text, path, MINISIGN_BYTES_MAX);
    if (status == OK)
        status = minisign_parse(&s, text.data, text.size, path);
    if (status == OK)
        status = minisign_check(key, &s, record->data, record->size, path);
    buffer_free(&text);
    return status;
}

static enum status provenance_check_compare_all(struct arena *arena, const char *dir, const json_t *record)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(record, "files"), i, entry)
    {
        const char *state, *path = file_join(arena, dir, provenance_check_name_of(entry));
        if (!path)
            return ERR_MEMORY;
        TRY(provenance_compare(path, entry, true, &state));
    }
    return OK;
}

enum status provenance_open_signed(json_t **record, const char *dir, const struct minisign_public *key)
{
    struct arena arena = {0};
    struct buffer text = {0};
    const char *path = file_join(&arena, dir, PROVENANCE_FILE), *signature = file_join(&arena, dir, PROVENANCE_SIGNATURE);
    *record = NULL;
    enum status status = path && signature ? file_read(&text, path, PROVENANCE_BYTES_MAX) : ERR_MEMORY;
    if (status == OK)
        status = provenance_check_signature(signature, &text, key);
    if (status == OK)
        status = provenance_parse(record, text.data, text.size, path);
    if (status == OK)
        status = provenance_check_compare_all(&arena, dir, *record);
    if (status != OK) {
        json_decref(*record);
        *record = NULL;
    }
    buffer_free(&text);
    arena_free(&arena);
    return status;
}
