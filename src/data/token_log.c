/* A record of the log is written after the bytes that it describes, and has a hash of itself: what a crash leaves after it is not
 * a valid record. Checking walks through the records and hashes what each added. */
#include "data/token_log.h"

#include <stddef.h>

#include "base/number.h"

#define WHOLE_CHECK INT64_C(67108864) /* bytes of tokens that are checked whenever a cache is opened */
enum { LIST_BYTES_MAX = 65536 };      /* of the list of skipped rows */

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

struct maps {
    struct file_map log, rows, tokens, skipped;
    int64_t sources; /* files of the data */
};

static enum status map_if_there(struct file_map *map, const char *path)
{
    *map = (struct file_map){0};
    return file_exists(path) ? file_map(map, path) : OK;
}

static void unmap(struct maps *m)
{
    file_unmap(&m->log);
    file_unmap(&m->rows);
    file_unmap(&m->tokens);
    file_unmap(&m->skipped);
}

static enum status map(struct maps *m, const struct token_files *files)
{
    *m = (struct maps){0};
    enum status status = map_if_there(&m->log, files->log);
    if (status == OK)
        status = map_if_there(&m->rows, files->rows);
    if (status == OK)
        status = map_if_there(&m->tokens, files->tokens);
    if (status == OK)
        status = map_if_there(&m->skipped, files->skipped);
    if (status != OK)
        unmap(m);
    return status;
}

/* Whether entries [from, to) are in the file and have this hash; pages that were read are released. */
static bool part_sound(const struct file_map *map, int64_t from, int64_t to, int64_t size, struct digest digest)
{
    if (from < 0 || to < from || to > map->size / size)
        return false;
    if (to == from)
        return true;
    bool same = digest_equal(hash_of(map->data + from * size, (to - from) * size), digest);
    file_map_drop(map, 0, to * size); /* with the page that the previous part shares */
    return same;
}

/* Whether the rows are contiguous, in the order of their files, and as the record counts them. */
static bool rows_sound(const struct maps *m, const struct token_totals *before, const struct token_totals *after)
{
    const struct token_row *rows = (const void *)m->rows.data;
    struct token_totals t = *before;
    int32_t file = t.rows ? rows[t.rows - 1].file : 0;
    for (int64_t r = before->rows; r < after->rows; r++) {
        const struct token_row *row = &rows[r];
        if (row->begin != t.tokens || row->count < 0 || row->count > after->tokens - t.tokens || row->trained < 0 ||
            row->trained > row->count || row->file < file || row->file >= m->sources)
            return false;
        count_row(&t, row);
        file = row->file;
    }
    return t.tokens == after->tokens && t.trained == after->trained && t.untrained == after->untrained &&
           t.longest == after->longest && t.longest_row == after->longest_row;
}

static bool block_sound(const struct maps *m, const struct record *record, const struct token_totals *before, bool deep)
{
    const struct token_totals *t = &record->totals;
    if (t->tokens < before->tokens || t->tokens > m->tokens.size / (int64_t)sizeof(int32_t) || t->rows < before->rows ||
        t->rows > m->rows.size / (int64_t)sizeof(struct token_row))
        return false;
    return rows_sound(m, before, t) &&
           part_sound(&m->rows, before->rows, t->rows, (int64_t)sizeof(struct token_row), record->rows) &&
           part_sound(&m->skipped, before->skipped_bytes, t->skipped_bytes, 1, record->list) &&
           (!deep || part_sound(&m->tokens, before->tokens, t->tokens, (int64_t)sizeof(int32_t), record->tokens));
}

static const char *find_damage(const struct maps *m, struct digest key, bool deep, struct token_log_state *state)
{
    const struct record *records = (const void *)m->log.data;
    int64_t count = m->log.size / (int64_t)sizeof *records;
    bool ended = false;
    deep |= m->tokens.size <= WHOLE_CHECK;
    for (int64_t i = 0; i < count && !ended; i++) {
        if (!digest_equal(records[i].check, hash_of(&records[i], (int64_t)offsetof(struct record, check))))
            return "its log is wrong";
        if (!digest_equal(records[i].key, key))
            return "it is of other data";
        if (!block_sound(m, &records[i], &state->totals, deep))
            return "its checksum is wrong";
        state->totals = records[i].totals;
        ended = records[i].complete;
        state->blocks += !ended;
    }
    const struct token_totals *t = &state->totals;
    state->complete = ended && m->log.size == count * (int64_t)sizeof *records &&
                      m->rows.size == t->rows * (int64_t)sizeof(struct token_row) &&
                      m->tokens.size == t->tokens * (int64_t)sizeof(int32_t) && m->skipped.size == t->skipped_bytes;
    return ended && !state->complete ? "its size is wrong" : count == 0 && m->log.size ? "its log is too short" : NULL;
}

enum status token_log_check(const struct token_files *files, struct digest key, int64_t sources, bool deep,
                            struct token_log_state *state)
{
    struct maps m;
    *state = (struct token_log_state){0};
    TRY(map(&m, files));
    m.sources = sources;
    state->damage = find_damage(&m, key, deep, state);
    unmap(&m);
    return OK;
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
