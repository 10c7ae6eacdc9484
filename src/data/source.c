/* The files of a data set, read in pieces.
 *
 * The idea: a block's text is what the previous block left over, then as much of the file as completes its size. Rows are found
 * in it; what is left of it belongs to the next block. A row that does not fit lets the piece grow, up to a limit.
 */
#include "data/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksums.h"
#include "base/file.h"
#include "base/number.h"
#include "base/path_hint.h"
#include "data/columns.h"
#include "data/row_stream.h"
#include "data/scan.h"
#include "data/split_files.h"

#define ROW_BYTES_MAX ((int64_t)64 << 20) /* bytes of one row */
/* Rows that each packed file may have, and more if it has 8 for each of its bytes: rows that differ take a bit. */
enum { ROWS_MAX = 500000, ROWS_A_BYTE = 8 };
enum { FILES_MAX = 4096, HASH_CHUNK = 256 * 1024, OPENING = 4096 };

struct source_file {
    const char *path;
    double weight;
    int64_t bytes; /* on disk */
    enum stream_form form;
    bool hashed;
    struct digest digest; /* if hashed */
};

struct source {
    struct arena arena;
    struct source_file *files;
    int64_t count, capacity;
    struct columns *columns; /* NULL: by their names */
    struct stream *open;     /* the file that is being read, or NULL */
    int64_t file;
    struct buffer left; /* read, and not yet in a block */
    int64_t offset;     /* of left's first byte in the file's text */
    int64_t rows;       /* of the file, handed out since it was opened */
    int64_t blank;      /* bytes passed over since the last row */
    struct hash before; /* of the text up to offset */
    struct scan scan;   /* line, array, place and last of that byte; its text is set in each read */
};

void source_block_free(struct source_block *block)
{
    memory_free(block->rows);
    buffer_free(&block->text);
    buffer_free(&block->renamed);
    *block = (struct source_block){0};
}

static enum status source_add_file(struct source *s, const char *path, double weight)
{
    if (s->count == FILES_MAX)
        return fail(ERR_ARGUMENT, "more than %d data files; join some of them", FILES_MAX);
    TRY(memory_grow(&s->files, &s->capacity, s->count + 1, (int64_t)sizeof *s->files));
    char *copy = arena_text(&s->arena, path, (int64_t)strlen(path));
    if (!copy)
        return ERR_MEMORY;
    s->files[s->count++] = (struct source_file){.path = copy, .weight = weight};
    return OK;
}

static enum status add_directory(struct source *s, const char *dir, const char *split, double weight)
{
    const char **paths;
    int64_t count;
    TRY(split_find(&s->arena, dir, split, &paths, &count));
    if (!count)
        return split_missing(dir, split);
    for (int64_t i = 0; i < count; i++)
        TRY(source_add_file(s, paths[i], weight));
    return OK;
}

/* org/name, with no such directory: a data set on the Hugging Face hub. */
static bool names_hub(struct arena *arena, const char *path)
{
    const char *slash = strchr(path, '/'), *dir = slash ? arena_text(arena, path, slash - path) : NULL;
    return dir && *dir && !strchr(".~$", *dir) && slash[1] && !strpbrk(slash + 1, "/.*$: ") && !file_exists(dir);
}

static enum status source_add_path(struct source *s, const char *path, const char *split, double weight)
{
    if (!file_exists(path) && names_hub(&s->arena, path))
        return fail(ERR_IO,
                    "%s: no such file; if it is a data set of the Hugging Face hub: hone pull downloads models, not data sets: "
                    "download it (hf download --repo-type dataset %s --local-dir DIR), and name DIR",
                    path, path);
    if (!file_exists(path))
        return fail(
            ERR_IO,
            "%s: %s; --%s names files of rows on this machine (.jsonl, .json, .csv, .tsv, packed as .gz or .zst or not, or "
            ".parquet) or directories with %s.jsonl or the like, separated by commas",
            path, path_hint(&s->arena, path, "file"), strcmp(split, "valid") == 0 ? "eval-data" : "data", split);
    return file_is_directory(path) ? add_directory(s, path, split, weight) : source_add_file(s, path, weight);
}

/* One of the list: a path, or a path with a weight after it. */
static enum status add_item(struct source *s, char *item, const char *split)
{
    char *colon = file_exists(item) ? NULL : strrchr(item, ':'), *end = NULL;
    double weight = 1;
    if (colon && colon != item) {
        weight = strtod(colon + 1, &end);
        if (end == colon + 1 || *end)
            return source_add_path(s, item, split, 1);
        if (!(weight > 0 && weight <= 1000))
            return fail(ERR_ARGUMENT, "%s: the weight must be above 0 and at most 1000: 0.5 takes half of the rows, 2 each twice",
                        item);
        *colon = 0;
    }
    return source_add_path(s, item, split, weight);
}

static enum status add_list(struct source *s, const char *paths, const char *split)
{
    if (file_exists(paths))
        return source_add_path(s, paths, split, 1);
    char *list = arena_text(&s->arena, paths, (int64_t)strlen(paths));
    if (!list)
        return ERR_MEMORY;
    for (char *item = list, *comma; item; item = comma) {
        comma = strchr(item, ',');
        if (comma)
            *comma++ = 0;
        item += strspn(item, " \t");
        for (size_t n = strlen(item); n && strchr(" \t", item[n - 1]); n--)
            item[n - 1] = 0;
        if (!*item)
            return fail(ERR_ARGUMENT, "\"%s\": an empty name among the data files: leave out the comma, or name the file", paths);
        TRY(add_item(s, item, split));
    }
    return OK;
}

/* Adds up to `more` bytes of the open file to a text. */
static enum status read_more(struct source *s, struct buffer *text, int64_t more)
{
    int64_t got;
    TRY(buffer_reserve(text, more));
    TRY(stream_read(s->open, text->data + text->size, more, &got));
    text->size += got;
    text->data[text->size] = 0;
    s->scan.last = got < more;
    return OK;
}

/* Removes the first bytes from a text that begins at s->offset. */
static void source_pass(struct source *s, struct buffer *text, int64_t count)
{
    hash_add(&s->before, text->data, count);
    s->offset += count;
    memmove(text->data, text->data + count, (size_t)(text->size -= count));
    text->data[text->size] = 0;
}

/* Removes blank lines from the beginning of s->left. Returns the place of the first character that is not white, or its size. */
static int64_t source_skip_blank_lines(struct source *s)
{
    int64_t first = (int64_t)strspn(s->left.data, " \t\r\n");
    const char *last = memrchr(s->left.data, '\n', (size_t)first);
    int64_t line = last ? last + 1 - s->left.data : 0;
    for (int64_t i = 0; i < line; i++)
        s->scan.line += s->left.data[i] == '\n';
    source_pass(s, &s->left, line);
    return first - line;
}

/* White space has an end: a packed file of some kilobytes may have gigabytes of it. */
static enum status check_blank(const struct source *s, int64_t bytes)
{
    if (bytes <= ROW_BYTES_MAX)
        return OK;
    return fail(ERR_DATA, "%s:%lld: more than %lld MB of white space without a row", s->files[s->file].path,
                (long long)s->scan.line, (long long)(ROW_BYTES_MAX >> 20));
}

/* Opens a file and finds out what it is. s->left has its text from the first line that is not blank. */
static enum status source_open_file(struct source *s, int64_t file)
{
    static const char mark[] = "\xef\xbb\xbf";
    stream_close(s->open);
    s->open = NULL;
    s->file = file;
    s->left.size = s->offset = s->rows = 0;
    hash_init(&s->before);
    s->scan = (struct scan){.line = 1};
    if (file == s->count)
        return OK;
    TRY(stream_open(&s->open, s->files[file].path, s->columns));
    s->files[file].bytes = file_size(s->files[file].path);
    s->files[file].form = stream_form(s->open);
    TRY(read_more(s, &s->left, OPENING));
    if (s->left.size >= 3 && !memcmp(s->left.data, mark, 3))
        source_pass(s, &s->left, 3);
    int64_t first;
    while ((first = source_skip_blank_lines(s)) == s->left.size && !s->scan.last) {
        TRY(check_blank(s, s->offset + s->left.size));
        TRY(read_more(s, &s->left, min(max(s->left.size, OPENING), ROW_BYTES_MAX + 1 - s->left.size)));
    }
    s->blank = s->offset;
    s->scan.array = first < s->left.size && s->left.data[first] == '[';
    return OK;
}

enum status source_open(struct source **out, const char *paths, const char *split, const char *columns)
{
    *out = NULL;
    struct source *s = memory_alloc((int64_t)sizeof *s);
    if (!s)
        return ERR_MEMORY;
    enum status status = columns_open(&s->columns, columns);
    if (status == OK)
        status = add_list(s, paths, split);
    for (int64_t i = s->count - 1; i >= 0 && status == OK; i--) /* files that cannot be read are reported before work begins */
        status = source_open_file(s, i);
    if (status == OK)
        *out = s;
    else
        source_close(s);
    return status;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    stream_close(s->open);
    columns_close(s->columns);
    buffer_free(&s->left);
    memory_free(s->files);
    arena_free(&s->arena);
    memory_free(s);
}

int64_t source_files(const struct source *s)
{
    return s->count;
}

const char *source_path(const struct source *s, int64_t file)
{
    return s->files[file].path;
}

int source_form(const struct source *s, int64_t file)
{
    return (int)s->files[file].form;
}

double source_weight(const struct source *s, int64_t file)
{
    return s->files[file].weight;
}

int64_t source_bytes(const struct source *s)
{
    int64_t bytes = 0;
    for (int64_t f = 0; f < s->count; f++)
        bytes += s->files[f].bytes;
    return bytes;
}

int64_t source_taken(const struct source *s)
{
    int64_t bytes = s->open ? stream_taken(s->open) : 0;
    for (int64_t f = 0; f < s->file; f++)
        bytes += s->files[f].bytes;
    return bytes;
}

enum status source_digest(struct source *s, int64_t file, struct digest *digest)
{
    struct source_file *f = &s->files[file];
    TRY(checksums_digest(f->path, &f->digest));
    f->hashed = true;
    *digest = f->digest;
    return OK;
}

bool source_digest_known(const struct source *s, int64_t file, struct digest *digest)
{
    *digest = s->files[file].digest;
    return s->files[file].hashed;
}

/* At a file's end: whether it was read as it was hashed. */
static enum status check_digest(const struct source *s)
{
    const struct source_file *f = &s->files[s->file];
    struct digest now;
    if (!f->hashed)
        return OK;
    TRY(stream_digest(s->open, &now));
    if (digest_equal(f->digest, now))
        return OK;
    return fail(ERR_IO, "%s: the file was changed while it was read; start again once nothing writes to it, or use a copy of it",
                f->path);
}

/* Reads up to this place of the open file's text; short of it if the text ends before. */
static enum status pass_up_to(struct source *s, int64_t offset)
{
    while (s->offset < offset) {
        if (!s->left.size && s->scan.last)
            return OK;
        if (!s->left.size) /* no further than asked for: the next block must be cut as without a seek */
            TRY(read_more(s, &s->left, min(offset - s->offset, HASH_CHUNK)));
        source_pass(s, &s->left, min(s->left.size, offset - s->offset));
    }
    return OK;
}

enum status source_seek(struct source *s, const struct source_position *position, bool *same)
{
    *same = position->file >= 0 && position->file <= s->count && position->offset >= 0 && position->line <= INT64_MAX / 2;
    if (!*same)
        return OK;
    TRY(source_open_file(s, position->file));
    if (!s->open || position->offset == 0)
        return OK;
    TRY(pass_up_to(s, position->offset));
    *same = s->offset == position->offset && digest_equal(hash_end(&s->before), position->before);
    s->scan.line = position->line > 0 ? position->line : 1;
    s->scan.place = SCAN_AFTER; /* blocks end after a row */
    return OK;
}

static enum status source_add_row(struct source_block *block, const struct source_row *row)
{
    TRY(memory_grow(&block->rows, &block->capacity, block->count + 1, (int64_t)sizeof *block->rows));
    block->rows[block->count++] = *row;
    return OK;
}

/* All whole rows of the block's text. The scan ends after the last one, or, if there is none, where more text is needed. */
static enum status find_rows(struct source *s, struct source_block *block)
{
    struct scan scan = s->scan, after_last = scan;
    scan.text = block->text.data;
    scan.begin = 0;
    scan.end = block->text.size;
    for (bool found = true; found;) {
        struct source_row row;
        TRY(scan_row(&scan, &row, &found));
        if (found) {
            TRY(source_add_row(block, &row));
            after_last = scan;
        }
    }
    s->scan = block->count ? after_last : scan;
    return OK;
}

static enum status fill_block(struct source *s, struct source_block *block, int64_t bytes)
{
    const char *path = s->files[s->file].path;
    struct buffer *text = &block->text;
    text->size = 0;
    TRY(buffer_reserve(text, 1)); /* an empty text has an address too */
    if (s->left.size)
        TRY(buffer_append(text, s->left.data, s->left.size));
    s->left.size = 0;
    for (int64_t size = bytes;;) {
        if (!s->scan.last && text->size < size)
            TRY(read_more(s, text, size - text->size));
        enum status status = find_rows(s, block);
        if (status != OK)
            return status == ERR_FORMAT ? fail_at(status, "%s:", path) : status;
        if (block->count)
            return OK;
        s->blank += s->scan.begin;
        source_pass(s, text, s->scan.begin); /* no row ends in it */
        TRY(check_blank(s, s->blank));
        if (s->scan.last)
            return OK;
        if (text->size >= ROW_BYTES_MAX)
            return fail(ERR_DATA, "%s:%lld: the row that begins here is longer than %lld MB", path, (long long)s->scan.line,
                        (long long)(ROW_BYTES_MAX >> 20));
        size = text->size * 2 > bytes ? text->size * 2 : bytes;
        size = size > ROW_BYTES_MAX && bytes < ROW_BYTES_MAX ? ROW_BYTES_MAX : size;
    }
}

/* What lies after the block's last row is for the next block. */
static enum status keep_rest(struct source *s, const struct source_block *block)
{
    int64_t used = s->scan.begin;
    TRY(buffer_append(&s->left, block->text.data + used, block->text.size - used));
    hash_add(&s->before, block->text.data, used);
    s->offset += used;
    return OK;
}

/* Gives the rows of a block the keys that --column-mapping says. */
static enum status rename_rows(const struct source *s, struct source_block *block)
{
    struct buffer *out = &block->renamed;
    out->size = 0;
    for (int64_t i = 0; i < block->count; i++) {
        int64_t before = out->size;
        TRY(columns_rename(s->columns, block->rows[i].text, block->rows[i].length, out));
        block->rows[i].length = out->size - before;
    }
    const char *text = out->data; /* only now it stays where it is */
    for (int64_t i = 0; i < block->count; text += block->rows[i++].length)
        block->rows[i].text = text;
    return OK;
}

/* A row takes 36 bytes of the token cache at least, and a packed file of some kilobytes may have a thousand million of them. */
static enum status source_check_rows(const struct source *s)
{
    const char *path = s->files[s->file].path;
    int64_t bytes = stream_taken(s->open);
    if (!stream_packed(s->open) || s->rows <= ROWS_MAX || s->rows / ROWS_A_BYTE <= bytes)
        return OK;
    return fail(
        ERR_LIMIT,
        "%s: more than %lld rows in %lld packed bytes: a file like this is mostly made to do harm. If you trust it, unpack "
        "it (gzip -d or zstd -d) and name what comes out: that has no such limit",
        path, (long long)s->rows, (long long)bytes);
}

enum status source_read(struct source *s, struct source_block *block, int64_t bytes)
{
    block->count = 0;
    while (s->open) {
        TRY(fill_block(s, block, bytes > 0 ? bytes : 1));
        if (block->count) {
            s->blank = 0;
            s->rows += block->count;
            TRY(source_check_rows(s));
            block->file = s->file;
            TRY(keep_rest(s, block));
            block->next = (struct source_position){s->file, s->offset, s->scan.line, hash_end(&s->before)};
            return s->columns && s->files[s->file].form == STREAM_JSON ? rename_rows(s, block) : OK;
        }
        TRY(check_digest(s));
        TRY(source_open_file(s, s->file + 1));
    }
    block->file = s->count;
    block->next = (struct source_position){.file = s->count, .line = 1};
    return OK;
}
