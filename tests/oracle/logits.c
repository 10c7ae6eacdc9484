/* Writes the logits of every position of every chat, for comparison with transformers.
 *
 *     logits MODEL_DIR ROWS.jsonl OUT.bin TOKENS [ADAPTER_DIR]
 *
 * Rows are packed several to a micro-batch of TOKENS slots, in float32. For every row in order: int32 n, int32 ids[n],
 * float32 logits[n][V]. An adapter is in PEFT's layout.
 */
#include <stdio.h>
#include <stdlib.h>

#include "run/batch.h"
#include "run/session.h"

static enum status write_batch(struct session *s, const struct data *data, const struct batch *b, int64_t index, float *logits,
                               FILE *out)
{
    const struct net *n = s->nets[index];
    int32_t *rows = engine_input(&s->engine, n->rows);
    int64_t slot = 0, V = s->model.config.vocabulary;
    struct writer w = {.e = &s->engine, .n = n};
    for (int64_t r = b->first; r < b->first + b->count; r++) {
        struct sequence sequence = batch_sequence(data, r, 0);
        batch_place(&w, &sequence);
    }
    for (w.row = 0; w.row < w.slot; w.row++)
        rows[w.row] = (int32_t)w.row;
    batch_end(&w);
    TRY(engine_run(&s->engine, index));
    TRY(engine_read(&s->engine, n->result, logits));
    slot = 0;
    for (int64_t r = b->first; r < b->first + b->count; r++) {
        int32_t count = (int32_t)data->rows[r].count;
        fwrite(&count, sizeof count, 1, out);
        for (int64_t i = 0; i < count; i++) {
            int32_t id = TOKEN_ID(data->marked[data->rows[r].begin + i]);
            fwrite(&id, sizeof id, 1, out);
        }
        fwrite(logits + slot * V, sizeof(float) * (size_t)V, (size_t)count, out);
        slot += count;
    }
    return ferror(out) ? fail(ERR_IO, "cannot write the logits") : OK;
}

static enum status write_rows(struct session *s, const struct data *data, int64_t tokens, FILE *out)
{
    int64_t index, count = 0;
    TRY(session_add(s, NET_LOGITS, tokens, tokens, 0, &index));
    TRY(session_plan(s));
    TRY(session_prepare(s));
    float *logits = memory_alloc(tokens * s->model.config.vocabulary * (int64_t)sizeof *logits);
    enum status status = logits ? OK : ERR_MEMORY;
    for (struct batch batch = {0}; status == OK && batch_next(data, tokens, &batch); count++)
        status = write_batch(s, data, &batch, index, logits, out);
    fprintf(stderr, "%lld rows in %lld micro-batches of %lld slots\n", (long long)data->row_count, (long long)count,
            (long long)tokens);
    memory_free(logits);
    return status;
}

static enum status run(const char *dir, const char *adapter, const char *path, FILE *out, int64_t tokens)
{
    struct session s;
    struct chat *chat = NULL;
    struct data data = {0};
    struct session_options options = {.dir = dir, .adapter = adapter, .device = "cpu", .run = RUN_FLOAT32, .weights = true};
    TRY(session_open(&s, &options));
    struct data_limits limits = {.max_tokens = s.model.config.window, .vocabulary = s.model.config.vocabulary, .model_dir = dir};
    enum status status = data_open(&data, path, &chat, &limits);
    if (status == OK)
        status = write_rows(&s, &data, tokens, out);
    data_close(&data);
    chat_close(chat);
    session_close(&s);
    return status;
}

int main(int argc, char **argv)
{
    FILE *out = argc == 5 || argc == 6 ? fopen(argv[3], "wb") : NULL;
    if (!out) {
        fprintf(stderr, "usage: logits MODEL_DIR ROWS.jsonl OUT.bin TOKENS [ADAPTER_DIR]\n");
        return (int)ERR_ARGUMENT;
    }
    enum status status = run(argv[1], argc == 6 ? argv[5] : NULL, argv[2], out, strtoll(argv[4], NULL, 10));
    if (fclose(out) != 0 && status == OK)
        status = fail(ERR_IO, "%s: cannot write", argv[3]);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
