/* Hashing files, and writing and reading the record of a folder. */
#include "format/provenance.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/minisign.h"
#include "base/parallel.h"
#include "base/reader.h"
#include "base/utf8.h"

enum { VERSION = 1, CHUNK = 256 << 10, FILES_MAX = 4096, NAME_BYTES_MAX = 255 };

bool provenance_is_file(const char *name)
{
    return !strcmp(name, PROVENANCE_FILE) || !strcmp(name, PROVENANCE_SIGNATURE);
}

/* --- hashing -------------------------------------------------------------------------------------------------------------- */

static enum status hash_pieces(struct reader *reader, char *chunk, struct provenance_file *f)
{
    struct sha sha;
    struct hash hash;
    int64_t got = CHUNK;
    sha_init(&sha, SHA_256);
    hash_init(&hash);
    for (f->bytes = 0; got == CHUNK; f->bytes += got) {
        TRY(reader_read(reader, chunk, CHUNK, &got));
        hash_add(&hash, chunk, got);
        if (f->by == PROVENANCE_SHA256)
            sha_add(&sha, chunk, got);
    }
    sha_end(&sha, f->sha256);
    f->digest = hash_end(&hash);
    return OK;
}

static enum status provenance_hash_file(struct provenance_file *f)
{
    struct reader reader;
    bool reads = f->by != PROVENANCE_SIZE && !f->known;
    TRY(reader_open(&reader, f->path));
    f->bytes = reader.size;
    char *chunk = reads ? memory_alloc(CHUNK) : NULL;
    enum status status = !reads ? OK : chunk ? hash_pieces(&reader, chunk, f) : ERR_MEMORY;
    memory_free(chunk);
    reader_close(&reader);
    return status;
}

static void hash_some(void *context, int64_t begin, int64_t end)
{
    struct provenance_file *files = context;
    for (int64_t i = begin; i < end; i++)
        files[i].status = provenance_hash_file(&files[i]);
}

/* A message is its thread's: what failed is tried again, here. */
enum status provenance_hash(struct provenance_file *files, int64_t count)
{
    parallel_for(count, 1, hash_some, files);
    for (int64_t i = 0; i < count; i++) {
        if (files[i].status == ERR_MEMORY)
            return fail(ERR_MEMORY, "%s: out of memory for its digest", files[i].path);
        if (files[i].status != OK)
            TRY(files[i].status = provenance_hash_file(&files[i]));
    }
    return OK;
}

/* --- writing -------------------------------------------------------------------------------------------------------------- */

static int provenance_by_name(const void *a, const void *b)
{
    return strcmp(((const struct provenance_file *)a)->name, ((const struct provenance_file *)b)->name);
}

void provenance_sort(struct provenance_file *files, int64_t count)
{
    if (count)
        qsort(files, (size_t)count, sizeof *files, provenance_by_name);
}

static const char *const keys[] = {[PROVENANCE_SHA256] = "sha256", [PROVENANCE_XXH128] = "xxh128"};

json_t *provenance_json(const struct provenance_file *files, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        const struct provenance_file *f = &files[i];
        json_t *file = json_pack("{s:o, s:I}", "name", json_lossy(f->name), "bytes", (json_int_t)f->bytes);
        char digest[HASH_TEXT];
        digest_text(f->digest, digest);
        if (f->by != PROVENANCE_SIZE)
            json_object_set_new(file, keys[f->by], json_string(f->by == PROVENANCE_SHA256 ? f->sha256 : digest));
        json_array_append_new(list, file);
    }
    return list;
}

static enum status provenance_sign(struct arena *arena, const char *path, const char *text, const struct minisign_key *key)
{
    struct sha sha;
    char digest[SHA_TEXT];
    int64_t size = (int64_t)strlen(text);
    struct buffer signature = {0};
    sha_init(&sha, SHA_256);
    sha_add(&sha, text, size);
    sha_end(&sha, digest);
    const char *comment = arena_format(arena, "file:" PROVENANCE_FILE " hone:%s sha256:%s", HONE_VERSION, digest);
    enum status status = comment ? minisign_sign(key, text, size, comment, &signature) : ERR_MEMORY;
    if (status == OK)
        status = file_replace(path, signature.data, signature.size);
    buffer_free(&signature);
    return status;
}

static enum status write_text(struct arena *arena, const char *dir, const char *text, const struct minisign_key *key)
{
    const char *path = file_join(arena, dir, PROVENANCE_FILE), *signature = file_join(arena, dir, PROVENANCE_SIGNATURE);
    if (!path || !signature)
        return ERR_MEMORY;
    if (!key && file_exists(signature))
        log_message(LOG_WARNING, "%s: removed, because the result that takes its place is not signed (--sign)", signature);
    file_remove(signature);
    TRY(file_replace(path, text, (int64_t)strlen(text)));
    return key ? provenance_sign(arena, signature, text, key) : OK;
}

enum status provenance_write(const char *dir, json_t *record, const struct minisign_key *key)
{
    struct arena arena = {0};
    json_t *whole = json_pack("{s:i, s:s}", "provenance", VERSION, "hone", HONE_VERSION);
    bool joined = record && whole && json_object_update(whole, record) == 0;
    char *text = joined ? json_file_text(whole) : NULL;
    enum status status = text ? write_text(&arena, dir, text, key) : fail(ERR_MEMORY, "out of memory: the provenance of %s", dir);
    json_text_free(text);
    json_decref(whole);
    json_decref(record);
    arena_free(&arena);
    return status;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* A name of an entry of the folder itself, which can be printed as it is. */
static bool provenance_is_plain(const char *name)
{
    uint32_t code;
    for (const char *at = name; *at; at += utf8_decode(at, &code))
        if (utf8_decode(at, &code), utf8_is_hidden(code))
            return false;
    return *name && strlen(name) <= NAME_BYTES_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !provenance_is_file(name);
}

const char *provenance_digest(const json_t *file, enum provenance_by *by)
{
    const json_t *strong = json_object_get(file, keys[PROVENANCE_SHA256]), *fast = json_object_get(file, keys[PROVENANCE_XXH128]);
    *by = strong ? PROVENANCE_SHA256 : fast ? PROVENANCE_XXH128 : PROVENANCE_SIZE;
    return json_string_value(strong ? strong : fast);
}

static bool is_digest(const json_t *file)
{
    enum provenance_by by;
    const char *text = provenance_digest(file, &by);
    size_t digits = by == PROVENANCE_SHA256 ? SHA_TEXT - 1 : HASH_TEXT - 1;
    return by == PROVENANCE_SIZE || (text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits);
}

static bool provenance_is_entry(const json_t *file)
{
    const json_t *bytes = json_object_get(file, "bytes"), *named = json_object_get(file, "name");
    const char *name = json_string_value(named);
    return name && strlen(name) == json_string_length(named) && provenance_is_plain(name) && json_is_integer(bytes) &&
           json_integer_value(bytes) >= 0 && is_digest(file);
}

/* A name that is there twice could be checked as one thing and used as another. Names of data may be: folders are not
 * distinguished. */
static enum status check_list(const json_t *list, bool ascending, const char *where)
{
    const char *before = "";
    size_t i;
    const json_t *file;
    if (!json_is_array(list) || json_array_size(list) > FILES_MAX)
        return fail(ERR_FORMAT, "%s: \"files\" is missing, or not a list of at most %d files", where, FILES_MAX);
    json_array_foreach(list, i, file)
    {
        if (!provenance_is_entry(file))
            return fail(ERR_FORMAT, "%s: file %zu of a list has no plain name, no size, or no right digest", where, i + 1);
        const char *name = json_string_value(json_object_get(file, "name"));
        if (ascending && strcmp(name, before) <= 0)
            return fail(ERR_FORMAT, "%s: its files are not in the order of their names, or one is there twice", where);
        before = name;
    }
    return OK;
}

static enum status check_record(const json_t *record, const char *where)
{
    int64_t version = 0;
    const char *made_by = NULL, *hone = NULL, *key;
    json_t *from = json_object_get(record, "made_from"), *part;
    TRY(json_need_int(record, "provenance", &version, where));
    if (version != VERSION)
        return fail(ERR_UNSUPPORTED, "%s: a record of version %lld, this hone reads version %d", where, (long long)version,
                    VERSION);
    TRY(json_get_text(record, "made_by", &made_by, where));
    TRY(json_get_text(record, "hone", &hone, where));
    if (!made_by || !hone || !json_is_object(from))
        return fail(ERR_FORMAT, "%s: \"made_by\", \"hone\" or \"made_from\" is missing", where);
    json_object_foreach(from, key, part) if (json_object_get(part, "files"))
        TRY(check_list(json_object_get(part, "files"), false, where));
    return check_list(json_object_get(record, "files"), true, where);
}

enum status provenance_parse(json_t **record, const char *text, int64_t size, const char *where)
{
    *record = NULL;
    if (size > PROVENANCE_BYTES_MAX)
        return fail(ERR_LIMIT, "%s: is longer than %d bytes", where, PROVENANCE_BYTES_MAX);
    TRY(json_parse(record, text, size, where));
    enum status status = json_is_object(*record) ? check_record(*record, where) : fail(ERR_FORMAT, "%s: is not an object", where);
    if (status == OK)
        return OK;
    json_decref(*record);
    *record = NULL;
    return status;
}
