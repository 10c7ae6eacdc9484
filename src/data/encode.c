/* The source gives blocks of rows. A block is taken in rounds, a round is cut into parts, each encoded by one thread, and the
 * parts are joined in order: the result does not depend on the number of threads, and memory is that of a block, not of the file.
 */
#include "data/encode.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/parallel.h"
#include "data/row_checks.h"
#include "data/token_budget.h"

enum { ROWS = 16, PARTS = 256, ROUND = ROWS * PARTS, BLOCK_BYTES = 4 << 20 };

#define TELL_SECONDS 10.0

struct part {
    struct token_block block;
    struct chat_row row;
    enum status status;
    struct buffer message; /* of the thread that met the error */
};

struct round {
    const struct source *source;
    const struct chat *chat;
    const struct checker *checker;
    const struct data_limits *limits;
    const struct source_row *rows;
    int64_t file;
    struct part parts[PARTS];
};

/* The row is at fault, not the machine: it can be skipped. */
static bool is_bad_row(enum status status)
{
    return status == ERR_DATA || status == ERR_FORMAT || status == ERR_LIMIT || status == ERR_UNSUPPORTED;
}

static enum status encode_row(struct part *part, const struct source_row *row, const struct round *round)
{
    enum row_kind kind;
    TRY(row_encode(round->chat, row->text, row->length, &part->row, &kind));
    const struct tokens *tokens = &part->row.tokens;
    TRY(data_check_ids(tokens->id, tokens->count, round->limits->vocabulary));
    unsigned found = 0;
    if (!round->limits->all_tokens) /* with all_tokens every end is trained */
        found = check_find(round->checker, row->text, row->length, kind, &part->row);
    chat_row_keep_ids(&part->row);
    TRY(token_block_add(&part->block, tokens->id, round->limits->all_tokens ? NULL : part->row.mask, tokens->count, round->file,
                        row->line, (int)kind, found));
    if (tokens->count > CHAT_ROW_LONG)
        chat_row_free(&part->row);
    return OK;
}

static void encode_part(void *context, int64_t begin, int64_t end)
{
    struct round *round = context;
    struct part *part = &round->parts[begin / ROWS];
    token_block_clear(&part->block);
    for (int64_t i = begin; i < end && part->status == OK; i++) {
        const struct source_row *row = &round->rows[i];
        enum status status = encode_row(part, row, round);
        if (is_bad_row(status) && round->limits->skip_bad)
            status = token_block_skip(&part->block, round->file, row->line, status_message());
        else if (status != OK)
            status = fail_at(status, "%s:%lld: ", source_path(round->source, round->file), (long long)row->line);
        part->status = status;
    }
    if (part->status != OK && buffer_append(&part->message, status_message(), (int64_t)strlen(status_message())) != OK)
        part->status = ERR_MEMORY;
}

static enum status encode_block(struct round *round, const struct source_block *block, struct token_block *out)
{
    round->file = block->file;
    for (int64_t done = 0, count; done < block->count; done += count) {
        count = min(block->count - done, ROUND);
        round->rows = block->rows + done;
        parallel_for(count, ROWS, encode_part, round);
        for (int64_t i = 0; i * ROWS < count; i++) {
            struct part *part = &round->parts[i];
            if (part->status != OK)
                return fail(part->status, "%s", part->message.data ? part->message.data : "out of memory: an error's message");
            TRY(token_block_join(out, &part->block));
        }
    }
    return OK;
}

static void encode_tell(const struct token_cache *cache, double start, double *logged)
{
    double now = clock_seconds();
    if (now - *logged < TELL_SECONDS)
        return;
    *logged = now;
    log_message(LOG_INFO, "encoding: %lld rows, %lld tokens after %.0f s", (long long)cache->totals.rows,
                (long long)cache->totals.tokens, now - start);
}

/* Goes on after the cache's last whole block. If that was encoded from another text, by a run that read the file while it was
 * changed, all blocks are encoded again. */
static enum status resume(struct token_cache *cache, struct source *source)
{
    bool same;
    TRY(source_seek(source, &cache->totals.next, &same));
    if (same)
        return OK;
    TRY(token_cache_restart(cache));
    return source_seek(source, &cache->totals.next, &same);
}

static enum status encode_blocks(struct round *round, struct token_cache *cache, struct source *source,
                                 struct source_block *block, struct token_block *out)
{
    double start = clock_seconds(), logged = start;
    TRY(resume(cache, source));
    for (;;) {
        enum status status = source_read(source, block, BLOCK_BYTES);
        cache->refused = status == ERR_LIMIT;
        TRY(status);
        if (!block->count)
            return OK;
        token_block_clear(out);
        TRY(encode_block(round, block, out));
        TRY(token_budget_check(cache, source, out));
        TRY(token_cache_append(cache, out, &block->next));
        encode_tell(cache, start, &logged);
    }
}

enum status encode_rows(struct token_cache *cache, struct source *source, const struct chat *chat,
                        const struct data_limits *limits)
{
    struct checker *checker = NULL;
    struct source_block block = {0};
    struct token_block out = {0};
    TRY(checker_open(&checker, chat));
    struct round *round = memory_alloc((int64_t)sizeof *round);
    if (!round) {
        checker_close(checker);
        return ERR_MEMORY;
    }
    round->checker = checker;
    round->source = source;
    round->chat = chat;
    round->limits = limits;
    enum status status = encode_blocks(round, cache, source, &block, &out);
    for (int i = 0; i < PARTS; i++) {
        token_block_free(&round->parts[i].block);
        chat_row_free(&round->parts[i].row);
        buffer_free(&round->parts[i].message);
    }
    token_block_free(&out);
    source_block_free(&block);
    memory_free(round);
    checker_close(checker);
    return status;
}
