/* provenance.json: what a folder was made from, and the SHA-256 of what is in it.
 *
 *     provenance              1, the version of this layout
 *     hone, made_by           the version, and the command: "train", "pull"
 *     made_from               the base model, the data, the options (state/origin.h)
 *     files                   {name, bytes, sha256 or xxh128 or neither}, in the order of their names
 *     provenance.json.minisig a signature of the above, if there was a key (base/minisign.h)
 *
 * It has no time, no path and no id of a run: the same run gives the same bytes. It is written after the files that it names, so
 * that those of a run that was killed on the way do not agree with it. checksums.xxh128 finds damage; only a signature finds
 * forgery, because somebody who can change a file can change its digest too.
 */
#ifndef FORMAT_PROVENANCE_H
#define FORMAT_PROVENANCE_H

#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/sha.h"

#define PROVENANCE_FILE "provenance.json"
#define PROVENANCE_SIGNATURE PROVENANCE_FILE ".minisig"

enum { PROVENANCE_BYTES_MAX = 1 << 20 };

/* A file up to this size gets its SHA-256 always: it takes 0.2 seconds, or 1.3 where the processor has no instructions for it.
 * For a larger one it is made only if it is signed. Without a signature no digest is more than a check for damage, which xxh128
 * is at the speed of the disk. */
enum { PROVENANCE_SMALL = 256 << 20 };

struct minisign_key;
struct minisign_public;

/* Whether a file of this name is one of the two. */
bool provenance_is_file(const char *name);

/* A file of a record, and where it is; provenance_hash fills in the rest. */
enum provenance_by { PROVENANCE_SHA256, PROVENANCE_XXH128, PROVENANCE_SIZE };
struct provenance_file {
    const char *name, *path;
    enum provenance_by by;
    bool known; /* its SHA-256 was there before */
    int64_t bytes;
    char sha256[SHA_TEXT];
    struct digest digest; /* by either digest */
    enum status status;
};

/* Reads the files, on all cores, for the digests that are wanted. */
enum status provenance_hash(struct provenance_file *files, int64_t count);

/* Puts them in the order of a record's own files. */
void provenance_sort(struct provenance_file *files, int64_t count);

/* As in a record, in this order. NULL: out of memory. */
json_t *provenance_json(const struct provenance_file *files, int64_t count);

/* Writes the record, which has all but "provenance" and "hone", and its signature if there is a key; else a signature of an
 * earlier one is removed. Takes the record; NULL means out of memory. */
enum status provenance_write(const char *dir, json_t *record, const struct minisign_key *key);

/* Reads a record that may be anybody's. ERR_FORMAT if it has another form than above: each list of files has plain names in
 * ascending order, sizes, and digests of the right length or none. */
enum status provenance_parse(json_t **record, const char *text, int64_t size, const char *where);

/* The digest of an entry, or NULL, and which it is. */
const char *provenance_digest(const json_t *file, enum provenance_by *by);

/* --- comparing: provenance_check.c ------------------------------------------------------------------------------------------ */

/* Whether the record's own files have one of this name. */
bool provenance_lists(const json_t *record, const char *name);

/* Compares a file with its entry; one of another size is not read. ERR_FORMAT: it is missing or was changed; or, if it is to be
 * covered by a signature, it has no SHA-256. *state is what it is in a word or three. */
enum status provenance_compare(const char *path, const json_t *entry, bool signed_for, const char **state);

/* Reads the record of a folder that this key must have signed, and compares every file with it. ERR_FORMAT if one of this does
 * not hold, ERR_IO if there is no record. */
enum status provenance_open_signed(json_t **record, const char *dir, const struct minisign_public *key);

#endif
