/* What a model says about sequences of ids on a device, in float32, for comparison with transformers.
 *
 *     family MODEL_DIR DEVICE SLOTS IDS OUT                             logits of the sequences, and greedy tokens
 *     family MODEL_DIR DEVICE SLOTS IDS OUT.safetensors ADAPTER_DIR     gradients of an adapter
 *
 * IDS is int32: the number of sequences, the length of each, and their ids. The last one is the prompt of the greedy tokens; the
 * others lie packed in SLOTS slots. OUT is float32 logits[tokens][V] of the packed ones; the same with other ids in all but the
 * second; the second's alone; int32 greedy[GREEDY], decoded over a cache. Gradients are those of the mean loss of all tokens of
 * the packed ones.
 */
#include "gradients.h"

#include <stdlib.h>

#include "base/file.h"
#include "run/batch.h"
#include "run/generation.h"

enum { SEQUENCES_MAX = 16, GREEDY = 20 };

struct input {
    struct sequence sequence[SEQUENCES_MAX]; /* the packed ones, then the prompt */
    int64_t packed, slots;
};

static enum status read_input(struct input *in, const int32_t *ids, int64_t count)
{
    int64_t sequences = count > 0 ? ids[0] : 0, at = 1 + sequences;
    if (sequences < 3 || sequences > SEQUENCES_MAX || at > count)
        return fail(ERR_ARGUMENT, "3 to %d sequences, not %lld", SEQUENCES_MAX, (long long)sequences);
    for (int64_t i = 0; i < sequences; at += in->sequence[i++].count)
        in->sequence[i] = (struct sequence){.ids = ids + at, .count = ids[1 + i], .number = i};
    in->packed = sequences - 1;
    return at == count ? OK : fail(ERR_ARGUMENT, "the sequences have %lld numbers, not %lld", (long long)at, (long long)count);
}

/* The logits of all tokens of sequences [first, end), which are alone in the slots. `others`: with other ids in all but the
 * second one. */
static enum status write_logits(struct session *s, int64_t program, const struct input *in, int64_t first, int64_t end,
                                bool others, float *logits, FILE *out)
{
    const struct net *n = s->nets[program];
    int32_t *rows = engine_input(&s->engine, n->rows);
    struct writer w = {.e = &s->engine, .n = n};
    for (int64_t i = first; i < end; i++)
        batch_place(&w, &in->sequence[i]);
    int64_t begin = in->sequence[0].count, until = begin + in->sequence[1].count;
    int32_t *ids = engine_input(&s->engine, n->ids);
    for (; w.row < w.slot; w.row++) {
        rows[w.row] = (int32_t)w.row;
        if (others && (w.row < begin || w.row >= until))
            ids[w.row] = (int32_t)((ids[w.row] + 1) % s->model.config.vocabulary);
    }
    batch_end(&w);
    TRY(engine_run(&s->engine, program));
    TRY(engine_read(&s->engine, n->result, logits));
    fwrite(logits, sizeof *logits, (size_t)(w.slot * s->model.config.vocabulary), out);
    return OK;
}

static enum status write_greedy(struct session *s, struct generator *g, const struct sequence *prompt, FILE *out)
{
    int32_t token;
    TRY(generate_feed(g, prompt->ids, prompt->count));
    for (int i = 0; i < GREEDY; i++) {
        TRY(sample_token(&g->chooser, g->logits, s->model.config.vocabulary, &(struct sampling){0}, &(struct said){0}, &token));
        fwrite(&token, sizeof token, 1, out);
        if (i + 1 < GREEDY)
            TRY(generate_feed(g, &token, 1));
    }
    return OK;
}

static enum status write_answers(struct session *s, const struct input *in, const char *path)
{
    struct generator g = {0};
    int64_t program;
    const struct sequence *prompt = &in->sequence[in->packed];
    TRY(session_add(s, NET_LOGITS, in->slots, in->slots, 0, &program));
    enum status status = generate_add(&g, s, prompt->count + GREEDY - 1, prompt->count);
    if (status == OK)
        status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    float *logits = memory_alloc(in->slots * s->model.config.vocabulary * (int64_t)sizeof *logits);
    FILE *out = fopen(path, "wb");
    if (status == OK)
        status = !logits ? ERR_MEMORY : out ? OK : fail(ERR_IO, "%s: cannot be written", path);
    if (status == OK)
        status = write_logits(s, program, in, 0, in->packed, false, logits, out);
    if (status == OK)
        status = write_logits(s, program, in, 0, in->packed, true, logits, out);
    if (status == OK)
        status = write_logits(s, program, in, 1, 2, false, logits, out);
    if (status == OK)
        status = write_greedy(s, &g, prompt, out);
    if (out && fclose(out) != 0 && status == OK)
        status = fail(ERR_IO, "%s: cannot be written", path);
    memory_free(logits);
    generate_free(&g);
    return status;
}

static enum status write_gradients(struct session *s, const struct input *in, const char *path)
{
    int64_t program;
    s->tuning.train = true;
    TRY(session_add(s, NET_TRAIN, in->slots, in->slots, 0, &program));
    TRY(session_plan(s));
    TRY(session_prepare(s));
    struct writer w = {.e = &s->engine, .n = s->nets[program]};
    for (int64_t i = 0; i < in->packed; i++)
        batch_put(&w, &in->sequence[i]);
    double weight = (double)w.row;
    batch_end(&w);
    TRY(engine_run(&s->engine, program));
    return gradients_write(s, path, weight);
}

static enum status run(char **argv, const char *adapter)
{
    struct file_map map;
    struct session s;
    struct input in = {.slots = strtoll(argv[3], NULL, 10)};
    struct session_options options = {.dir = argv[1], .device = argv[2], .adapter = adapter, .run = RUN_FLOAT32, .weights = true};
    TRY(file_map(&map, argv[4]));
    enum status status = read_input(&in, (const int32_t *)(const void *)map.data, map.size / 4);
    if (status == OK)
        status = session_open(&s, &options);
    if (status == OK) {
        status = adapter ? write_gradients(&s, &in, argv[5]) : write_answers(&s, &in, argv[5]);
        session_close(&s);
    }
    file_unmap(&map);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: family MODEL_DIR DEVICE SLOTS IDS OUT [ADAPTER_DIR]\n");
        return (int)ERR_ARGUMENT;
    }
    enum status status = run(argv, argc == 7 ? argv[6] : NULL);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
