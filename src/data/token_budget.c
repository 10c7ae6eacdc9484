/* A row takes 32 bytes and 4 for each token. A row of text takes 3 times its bytes at worst where it is small ({"text":""} and a
 * newline: 12 bytes, 36 of cache), and 4 times where each byte is a token. A packed byte may give 2,000 of text
 * (base/decompress.h), so 8,000 times the size on disk is what a good file never takes; what a template adds to small rows, as a
 * long system prompt of its own, is below that too, and the first gigabyte is not counted. */
#include "data/token_budget.h"

#include "base/directory.h"
#include "base/number.h"

#define BUDGET_DEFAULT (INT64_C(1) << 30) /* bytes that the cache of any data may take */
#define ROOM_LEFT (INT64_C(16) << 20)     /* bytes that stay free */
#define GB(bytes) ((double)(bytes)*1e-9)

enum { BUDGET_FACTOR = 8000 };

static int64_t cache_bytes(int64_t rows, int64_t tokens)
{
    return rows * (int64_t)sizeof(struct token_row) + tokens * (int64_t)sizeof(int32_t);
}

static enum status check_budget(struct token_cache *c, const struct source *source, int64_t bytes)
{
    int64_t taken = source_taken(source);
    if (bytes <= BUDGET_DEFAULT || bytes / BUDGET_FACTOR <= taken)
        return OK;
    c->refused = true;
    return fail(
        ERR_LIMIT,
        "%s: the first %lld bytes of the data become more than %.3f GB of tokens, over %d times as much: packed data, or a "
        "chat template, that is made to do harm is like this. If you trust them, unpack the data and leave out what the "
        "template adds to each row",
        source_path(source, c->totals.next.file), (long long)taken, GB(bytes), BUDGET_FACTOR);
}

static enum status check_room(struct token_cache *c, const struct source *source, int64_t bytes, int64_t more)
{
    int64_t room = directory_room(c->dir), taken = source_taken(source);
    double rest = taken > 0 ? (double)bytes * (double)max(source_bytes(source) - taken, 0) / (double)taken : 0;
    if (room < 0 || (more + ROOM_LEFT <= room && rest / 2 <= (double)room))
        return OK;
    c->failed = true;
    return fail(
        ERR_IO,
        "%s: the tokens of the data need %.3f GB of disk so far and about %.3f GB for the rest of its %.3f GB, and %.3f GB "
        "are free: make room, or choose another --cache-dir (without one it is $TMPDIR)",
        c->dir, GB(bytes), rest * 1e-9, GB(source_bytes(source)), GB(room));
}

enum status token_budget_check(struct token_cache *c, const struct source *source, const struct token_block *block)
{
    int64_t more = cache_bytes(block->row_count, block->token_count);
    int64_t bytes = cache_bytes(c->totals.rows, c->totals.tokens) + more;
    TRY(check_budget(c, source, bytes));
    return check_room(c, source, bytes, more);
}
