/* Chooses tokens from logits as a request says: sampling FILE
 *
 * The file has, in the byte order of this machine: 7 doubles (temperature, top_p, min_p, the repetition, presence and frequency
 * penalty, and the number of draws), 6 int64 (V, top_k, the prompt's tokens, all tokens, biases, seed), V float logits, the
 * tokens and the biased tokens as int32, and the biases as float. Written are the logits with biases and penalties, V floats, and
 * how often each token was drawn at so many positions, V int64.
 */
#include <stdio.h>

#include "base/memory.h"
#include "run/sample_token.h"

static enum status choose(FILE *in, FILE *out)
{
    double r[7];
    int64_t n[6];
    if (fread(r, sizeof *r, 7, in) != 7 || fread(n, sizeof *n, 6, in) != 6)
        return fail(ERR_FORMAT, "a short file");
    struct chooser chooser;
    struct arena arena = {0};
    size_t V = (size_t)n[0], said_count = (size_t)n[3], biases = (size_t)n[4];
    float *logits = arena_array(&arena, n[0], sizeof *logits), *bias = arena_array(&arena, n[4], sizeof *bias);
    int32_t *ids = arena_array(&arena, n[3], sizeof *ids), *biased = arena_array(&arena, n[4], sizeof *biased), token;
    int64_t *drawn = arena_array(&arena, n[0], sizeof *drawn);
    bool whole = fread(logits, sizeof *logits, V, in) == V && fread(ids, sizeof *ids, said_count, in) == said_count &&
                 fread(biased, sizeof *biased, biases, in) == biases && fread(bias, sizeof *bias, biases, in) == biases;
    enum status status = chooser_init(&chooser, n[0]);
    struct sampling s = {.temperature = r[0],
                         .top_p = r[1],
                         .min_p = r[2],
                         .repetition_penalty = r[3],
                         .presence_penalty = r[4],
                         .frequency_penalty = r[5],
                         .top_k = n[1],
                         .bias_tokens = biased,
                         .biases = bias,
                         .bias_count = n[4]};
    for (int64_t i = 0; i < (int64_t)r[6] && status == OK; i++) {
        s.seed = (uint64_t)(n[5] + i);
        status = sample_token(&chooser, logits, n[0], &s, &(struct said){ids, n[2], n[3]}, &token);
        drawn[token] += status == OK;
    }
    if (status == OK)
        sample_adjust(logits, n[0], &s, &(struct said){ids, n[2], n[3]}, chooser.seen);
    fwrite(logits, sizeof *logits, V, out);
    fwrite(drawn, sizeof *drawn, V, out);
    chooser_free(&chooser);
    arena_free(&arena);
    return whole ? status : fail(ERR_FORMAT, "a short file");
}

int main(int argc, char **argv)
{
    FILE *in = argc == 2 ? fopen(argv[1], "rb") : NULL;
    enum status status = in ? choose(in, stdout) : fail(ERR_IO, "sampling FILE");
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    if (in)
        fclose(in);
    return (int)status;
}
