/* A record of the log is written after the bytes that it describes, and has a hash of itself: what a crash leaves after it is not
 * a valid record. Checking walks through the records and hashes what each added. */
#include "data/token_log.h"

#include <stddef.h>
#include <string.h>

#include "base/number.h"
#include "base/reader.h"

#define WHOLE_CHECK INT64_C(67108864) /* bytes of tokens that are checked whenever a cache is opened */
#define UNREADABLE "a part of it cannot be read"
enum { LIST_BYTES_MAX = 65536, CHUNK = 256 * 1024 }; /* of the list of skipped rows; of what is read at once */

struct record {
    struct digest key;
    struct token_totals totals;
    int64_t complete;
    struct digest rows, tokens, list; /* of what this block added */
    struct digest check;              /* of all above */
};

_Static_assert(sizeof(struct token_row) == 32 && sizeof(struct record) % 8 == 0, "the layout of the files");
_Static_assert(sizeof(struct record) == 16 * 5 + sizeof(struct token_totals) + 8, "records have no gaps");

enum status token_files_name(struct token_files *files, struct arena *arena, const char *dir)
{
    *files = (struct token_files){.tokens = file_join(arena, dir, "tokens"),
                                  .rows = file_join(arena, dir, "rows"),
                                  .skipped = file_join(arena, dir, "skipped"),
                                  .log = file_join(arena, dir, "log"),
                                  .lock = file_join(arena, dir, "lock")};
    return files->tokens && files->rows && files->skipped && files->log && files->lock ? OK : ERR_MEMORY;
}

enum status token_files_sync(const struct token_files *files)
{
    TRY(file_sync(files->tokens));
    TRY(file_sync(files->rows));
    TRY(file_sync(files->skipped));
    return file_sync(files->log);
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

/* As many whole lines of the list as there is room for. */
static int64_t list_bytes(const struct token_block *block, int64_t used)
{
    int64_t n = min(block->list.size, LIST_BYTES_MAX - used);
    while (n > 0 && block->list.data[n - 1] != '\n')
        n--;
    return max(n, 0);
}

static void count_row(struct token_totals *t, const struct token_row *row)
{
    t->trained += row->trained;
    t->untrained += !row->trained;
    if (row->count > t->longest) {
        t->longest = row->count;
        t->longest_row = t->rows;
    }
    t->rows++;
    t->tokens += row->count;
}

static void count_block(struct token_totals *t, const struct token_block *block)
{
    for (int64_t r = 0; r < block->row_count; r++)
        count_row(t, &block->rows[r]);
    for (int k = 0; k < TOKEN_KINDS; k++)
        t->kinds[k] += block->kinds[k];
    for (int f = 0; f < TOKEN_FINDINGS; f++)
        t->findings[f] += block->findings[f];
    t->skipped += block->skipped;
}

enum status token_log_append(const struct token_files *files, struct digest key, const struct token_block *block,
                             const struct source_position *next, struct token_totals *totals)
{
    static const struct token_block nothing;
    struct token_totals after = *totals;
    struct record record = {.key = key, .complete = !block};
    block = block ? block : &nothing;
    int64_t list = list_bytes(block, totals->skipped_bytes);
    for (int64_t r = 0; r < block->row_count; r++)
        block->rows[r].begin += totals->tokens;
    int64_t row_bytes = block->row_count * (int64_t)sizeof *block->rows;
    int64_t token_bytes = block->token_count * (int64_t)sizeof *block->tokens;
    count_block(&after, block);
    after.skipped_bytes += list;
    after.next = *next;
    record.totals = after;
    record.rows = hash_of(block->rows, row_bytes);
    record.tokens = hash_of(block->tokens, token_bytes);
    record.list = hash_of(block->list.data, list);
    record.check = hash_of(&record, (int64_t)offsetof(struct record, check));
    TRY(file_append(files->tokens, block->tokens, token_bytes));
    TRY(file_append(files->rows, block->rows, row_bytes));
    TRY(file_append(files->skipped, block->list.data, list));
    TRY(file_append(files->log, &record, (int64_t)sizeof record));
    *totals = after;
    return OK;
}

/* --- checking ----------------------------------------------------------------------------------------------------------- */

/* The files are read, not mapped: a sector that cannot be read would end the program. */
struct parts {
    struct reader log, rows, tokens, skipped;
    struct buffer text; /* rows of a block */
    char *chunk;
    int64_t sources;    /* files of the data */
    int32_t file;       /* of the last row */
    enum status status; /* of reading */
};

static enum status open_if_there(struct reader *reader, const char *path)
{
    *reader = (struct reader){.path = path, .fd = -1};
    return file_exists(path) ? reader_open(reader, path) : OK;
}

static void close_parts(struct parts *p)
{
    reader_close(&p->log);
    reader_close(&p->rows);
    reader_close(&p->tokens);
    reader_close(&p->skipped);
    buffer_free(&p->text);
    memory_free(p->chunk);
}

/* The files stay open until close_parts, whatever fails. */
static enum status open_parts(struct parts *p, const struct token_files *files)
{
    enum status status = open_if_there(&p->log, files->log);
    enum status rows = open_if_there(&p->rows, files->rows);
    enum status tokens = open_if_there(&p->tokens, files->tokens);
    enum status skipped = open_if_there(&p->skipped, files->skipped);
    status = status != OK ? status : rows != OK ? rows : tokens != OK ? tokens : skipped;
    p->chunk = status == OK ? memory_alloc(CHUNK) : NULL;
    return status != OK || p->chunk ? status : ERR_MEMORY;
}

static bool token_log_read_part(struct parts *p, const struct reader *reader, int64_t offset, void *bytes, int64_t count)
{
    p->status = reader_read_at(reader, offset, bytes, count);
    return p->status == OK;
}

/* Whether entries [from, to) are in the file and have this hash. */
static bool part_sound(struct parts *p, const struct reader *reader, int64_t from, int64_t to, int64_t size, struct digest digest)
{
    struct hash hash;
    if (from < 0 || to < from || to > reader->size / size)
        return false;
    if (to == from)
        return true;
    hash_init(&hash);
    for (int64_t at = from * size, n; at < to * size; at += n) {
        n = min(to * size - at, CHUNK);
        if (!token_log_read_part(p, reader, at, p->chunk, n))
            return false;
        hash_add(&hash, p->chunk, n);
    }
    return digest_equal(hash_end(&hash), digest);
}

/* Reads the rows of a block, which is in memory when it is made too. */
static bool token_log_read_rows(struct parts *p, int64_t from, int64_t to)
{
    int64_t size = (int64_t)sizeof(struct token_row);
    p->text.size = 0;
    p->status = buffer_reserve(&p->text, (to - from) * size);
    return p->status == OK && token_log_read_part(p, &p->rows, from * size, p->text.data, (to - from) * size);
}

/* Whether the rows are contiguous, in the order of their files, and as the record counts them. */
static bool rows_sound(struct parts *p, const struct token_totals *before, const struct token_totals *after)
{
    struct token_totals t = *before;
    struct token_row row;
    for (int64_t r = before->rows; r < after->rows; r++) {
        memcpy(&row, p->text.data + (r - before->rows) * (int64_t)sizeof row, sizeof row);
        if (row.begin != t.tokens || row.count < 0 || row.count > after->tokens - t.tokens || row.trained < 0 ||
            row.trained > row.count || row.file < p->file || row.file >= p->sources)
            return false;
        count_row(&t, &row);
        p->file = row.file;
    }
    return t.tokens == after->tokens && t.trained == after->trained && t.untrained == after->untrained &&
           t.longest == after->longest && t.longest_row == after->longest_row;
}

static bool block_sound(struct parts *p, const struct record *record, const struct token_totals *before, bool deep)
{
    const struct token_totals *t = &record->totals;
    if (t->tokens < before->tokens || t->tokens > p->tokens.size / (int64_t)sizeof(int32_t) || t->rows < before->rows ||
        t->rows > p->rows.size / (int64_t)sizeof(struct token_row))
        return false;
    int64_t row_bytes = (t->rows - before->rows) * (int64_t)sizeof(struct token_row);
    return token_log_read_rows(p, before->rows, t->rows) && rows_sound(p, before, t) &&
           (!row_bytes || digest_equal(hash_of(p->text.data, row_bytes), record->rows)) &&
           part_sound(p, &p->skipped, before->skipped_bytes, t->skipped_bytes, 1, record->list) &&
           (!deep || part_sound(p, &p->tokens, before->tokens, t->tokens, (int64_t)sizeof(int32_t), record->tokens));
}

static const char *find_damage(struct parts *p, struct digest key, bool deep, struct token_log_state *state)
{
    struct record record;
    int64_t count = p->log.size / (int64_t)sizeof record;
    bool ended = false;
    deep |= p->tokens.size <= WHOLE_CHECK;
    for (int64_t i = 0; i < count && !ended; i++) {
        if (!token_log_read_part(p, &p->log, i * (int64_t)sizeof record, &record, (int64_t)sizeof record))
            return UNREADABLE;
        if (!digest_equal(record.check, hash_of(&record, (int64_t)offsetof(struct record, check))))
            return "its log is wrong";
        if (!digest_equal(record.key, key))
            return "it is of other data";
        if (!block_sound(p, &record, &state->totals, deep))
            return p->status == OK ? "its checksum is wrong" : UNREADABLE;
        state->totals = record.totals;
        ended = record.complete;
        state->blocks += !ended;
    }
    const struct token_totals *t = &state->totals;
    state->complete = ended && p->log.size == count * (int64_t)sizeof record &&
                      p->rows.size == t->rows * (int64_t)sizeof(struct token_row) &&
                      p->tokens.size == t->tokens * (int64_t)sizeof(int32_t) && p->skipped.size == t->skipped_bytes;
    return ended && !state->complete ? "its size is wrong" : count == 0 && p->log.size ? "its log is too short" : NULL;
}

enum status token_log_check(const struct token_files *files, struct digest key, int64_t sources, bool deep,
                            struct token_log_state *state)
{
    struct parts p = {.sources = sources};
    *state = (struct token_log_state){0};
    enum status status = open_parts(&p, files);
    if (status == OK)
        state->damage = find_damage(&p, key, deep, state);
    close_parts(&p);
    return status == OK && p.status == ERR_MEMORY ? ERR_MEMORY : status;
}

static enum status cut_if_there(const char *path, int64_t size)
{
    return size == 0 && !file_exists(path) ? OK : file_cut(path, size);
}

enum status token_log_cut(const struct token_files *files, const struct token_log_state *state)
{
    const struct token_totals *t = &state->totals;
    TRY(cut_if_there(files->log, state->blocks * (int64_t)sizeof(struct record)));
    TRY(cut_if_there(files->tokens, t->tokens * (int64_t)sizeof(int32_t)));
    TRY(cut_if_there(files->rows, t->rows * (int64_t)sizeof(struct token_row)));
    return cut_if_there(files->skipped, t->skipped_bytes);
}
