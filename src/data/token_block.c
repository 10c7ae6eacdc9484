/* Rows in memory, on their way to the cache's files. */
#include <string.h>

#include "data/token_cache.h"

enum { CAUSE_BYTES_MAX = 300, MOVED = 1 << 18 }; /* tokens that are not copied if they need not be */

void token_block_clear(struct token_block *block)
{
    block->token_count = block->row_count = block->skipped = block->list.size = 0;
    memset(block->kinds, 0, sizeof block->kinds);
    memset(block->findings, 0, sizeof block->findings);
}

void token_block_free(struct token_block *block)
{
    memory_free(block->tokens);
    memory_free(block->rows);
    buffer_free(&block->list);
    *block = (struct token_block){0};
}

static enum status token_block_reserve(struct token_block *block, int64_t tokens, int64_t rows)
{
    TRY(memory_grow(&block->tokens, &block->token_capacity, block->token_count + tokens, (int64_t)sizeof *block->tokens));
    return memory_grow(&block->rows, &block->row_capacity, block->row_count + rows, (int64_t)sizeof *block->rows);
}

uint32_t token_row_check(const int32_t *tokens, int64_t count)
{
    return (uint32_t)hash_of(tokens, count * (int64_t)sizeof *tokens).low;
}

bool token_row_sound(const struct token_row *row, const int32_t *tokens)
{
    return token_row_check(tokens, row->count) == row->check;
}

enum status token_block_add(struct token_block *block, const int32_t *ids, const uint8_t *mask, int64_t count, int64_t file,
                            int64_t line, int kind, unsigned found)
{
    if (count > INT32_MAX || file > INT32_MAX)
        return fail(ERR_LIMIT, "a row of %lld tokens in file %lld: the max is %d", (long long)count, (long long)file, INT32_MAX);
    TRY(token_block_reserve(block, count, 1));
    int32_t *to = block->tokens + block->token_count, trained = 0;
    for (int64_t i = 0; i < count; i++) {
        bool target = i > 0 && (!mask || mask[i]); /* the first token has nothing before it */
        to[i] = target ? ids[i] | TOKEN_MARK : ids[i];
        trained += target;
    }
    block->rows[block->row_count++] = (struct token_row){.begin = block->token_count,
                                                         .line = line,
                                                         .count = (int32_t)count,
                                                         .trained = trained,
                                                         .file = (int32_t)file,
                                                         .check = token_row_check(to, count)};
    block->token_count += count;
    block->kinds[kind]++;
    for (int f = 0; f < TOKEN_FINDINGS; f++)
        block->findings[f] += found >> f & 1;
    return OK;
}

enum status token_block_skip(struct token_block *block, int64_t file, int64_t line, const char *cause)
{
    block->skipped++;
    int length = 0;
    while (cause[length] && cause[length] != '\n' && length < CAUSE_BYTES_MAX)
        length++;
    while (length && length == CAUSE_BYTES_MAX && ((unsigned char)cause[length] & 0xC0) == 0x80)
        length--; /* not to cut a character in half */
    return buffer_format(&block->list, "%lld:%lld: %.*s\n", (long long)file, (long long)line, length, cause);
}

enum status token_block_join(struct token_block *block, struct token_block *more)
{
    if (!block->row_count && !block->skipped && more->token_count > MOVED) {
        struct token_block old = *block;
        *block = *more;
        *more = old;
        return OK;
    }
    TRY(token_block_reserve(block, more->token_count, more->row_count));
    TRY(buffer_append(&block->list, more->list.data, more->list.size));
    if (more->token_count)
        memcpy(block->tokens + block->token_count, more->tokens, (size_t)more->token_count * sizeof *more->tokens);
    for (int64_t r = 0; r < more->row_count; r++) {
        block->rows[block->row_count + r] = more->rows[r];
        block->rows[block->row_count + r].begin += block->token_count;
    }
    block->row_count += more->row_count;
    block->token_count += more->token_count;
    block->skipped += more->skipped;
    for (int k = 0; k < TOKEN_KINDS; k++)
        block->kinds[k] += more->kinds[k];
    for (int f = 0; f < TOKEN_FINDINGS; f++)
        block->findings[f] += more->findings[f];
    return OK;
}
