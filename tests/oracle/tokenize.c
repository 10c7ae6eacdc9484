/* Encodes and decodes what tokenizer.py and bench/tokenizer_speed.py send. Numbers are 32 bits in the machine's order; a frame is
 * a length in bytes and so many bytes. Each frame on stdin gives one on stdout; -1 and a frame with the message if it failed.
 *
 *     tokenize ids TOKENIZER         texts to ids
 *     tokenize offsets TOKENIZER     texts to triples (id, begin, end)
 *     tokenize surrounded TOKENIZER  texts to ids, with the tokens of the post-processor
 *     tokenize decode TOKENIZER      ids to text
 *     tokenize pieces TOKENIZER      ids to text, one by one
 *     tokenize time TOKENIZER N      texts, then an empty line at a time: encodes all texts in N threads, prints the seconds
 *
 * TOKENIZER is a tokenizer.json or a .gguf.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "text/gguf_tokenizer.h"

struct frame {
    char *bytes;
    int32_t length;
};

static int read_frame(struct frame *frame, int32_t *capacity)
{
    if (fread(&frame->length, sizeof frame->length, 1, stdin) != 1 || frame->length < 0)
        return 0;
    if (frame->length >= *capacity) {
        *capacity = frame->length * 2 + 64;
        frame->bytes = realloc(frame->bytes, (size_t)*capacity);
    }
    return frame->bytes && fread(frame->bytes, 1, (size_t)frame->length, stdin) == (size_t)frame->length;
}

static void write_number(int32_t number)
{
    fwrite(&number, sizeof number, 1, stdout);
}

static void write_frame(const void *bytes, int64_t length)
{
    write_number((int32_t)length);
    fwrite(bytes, 1, (size_t)length, stdout);
}

static void write_error(void)
{
    write_number(-1);
    write_frame(status_message(), (int64_t)strlen(status_message()));
}

static void encode(const struct tokenizer *t, const char *mode, const struct frame *frame, struct tokens *tokens)
{
    tokens->count = 0;
    enum status status = strcmp(mode, "surrounded") == 0 ? tokenizer_encode_surrounded(t, frame->bytes, frame->length, tokens)
                                                         : tokenizer_encode(t, frame->bytes, frame->length, tokens);
    if (status != OK) {
        write_error();
        return;
    }
    if (strcmp(mode, "offsets") != 0) {
        write_frame(tokens->id ? (const void *)tokens->id : "", tokens->count * 4);
        return;
    }
    write_number((int32_t)tokens->count * 12);
    for (int64_t i = 0; i < tokens->count; i++) {
        int32_t triple[] = {tokens->id[i], (int32_t)tokens->begin[i], (int32_t)tokens->end[i]};
        fwrite(triple, sizeof triple, 1, stdout);
    }
}

static void decode(const struct tokenizer *t, const char *mode, const struct frame *frame, struct buffer *text)
{
    int32_t count = frame->length / 4, *ids = malloc((size_t)frame->length + 4);
    enum status status = OK;
    memcpy(ids, frame->bytes, (size_t)count * 4);
    text->size = 0;
    if (strcmp(mode, "decode") == 0)
        status = tokenizer_decode(t, ids, count, true, text);
    else
        for (int32_t i = 0; i < count && status == OK; i++)
            status = tokenizer_decode_more(t, &ids[i], 1, true, i == 0, text);
    if (status != OK)
        write_error();
    else
        write_frame(text->size ? text->data : "", text->size);
    free(ids);
}

struct work {
    const struct tokenizer *t;
    const struct frame *frames;
    int64_t tokens[4096]; /* of each block */
};

enum { BLOCK = 16 };

static void encode_block(void *context, int64_t begin, int64_t end)
{
    struct work *work = context;
    struct tokens tokens = {0};
    for (int64_t i = begin; i < end; i++)
        if (tokenizer_encode(work->t, work->frames[i].bytes, work->frames[i].length, &tokens) != OK)
            fprintf(stderr, "%s\n", status_message());
    work->tokens[begin / BLOCK % 4096] = tokens.count;
    tokens_free(&tokens);
}

static void run_time(const struct tokenizer *t, int threads)
{
    struct frame *frames = NULL, frame = {0};
    int32_t capacity = 0;
    int64_t count = 0, room = 0;
    while (read_frame(&frame, &capacity)) {
        if (count == room)
            frames = realloc(frames, (size_t)(room = room * 2 + 64) * sizeof *frames);
        frames[count] = (struct frame){malloc((size_t)frame.length + 1), frame.length};
        memcpy(frames[count++].bytes, frame.bytes, (size_t)frame.length);
    }
    struct work *work = calloc(1, sizeof *work);
    *work = (struct work){.t = t, .frames = frames};
    parallel_set_threads(threads);
    while (getchar() == '\n') {
        double start = clock_seconds();
        parallel_for(count, BLOCK, encode_block, work);
        printf("%.9f\n", clock_seconds() - start);
        fflush(stdout);
    }
    for (int64_t i = 0; i < count; i++)
        free(frames[i].bytes);
    free(frames);
    free(frame.bytes);
    free(work);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: tokenize ids|offsets|surrounded|decode|pieces|time TOKENIZER [THREADS]\n");
        return 2;
    }
    struct tokenizer *t = NULL;
    const char *mode = argv[1], *path = argv[2];
    double start = clock_seconds();
    size_t length = strlen(path);
    bool gguf = length > 5 && strcmp(path + length - 5, ".gguf") == 0;
    enum status status = gguf ? gguf_tokenizer_open_file(&t, path) : tokenizer_open(&t, path);
    if (status != OK) {
        fprintf(stderr, "%s\n", status_message());
        return (int)status;
    }
    if (strcmp(mode, "time") == 0) {
        printf("%.9f\n", clock_seconds() - start);
        fflush(stdout);
        run_time(t, argc > 3 ? atoi(argv[3]) : 1);
    }
    struct frame frame = {0};
    struct tokens tokens = {0};
    struct buffer text = {0};
    int32_t capacity = 0;
    while (strcmp(mode, "time") != 0 && read_frame(&frame, &capacity)) {
        if (strcmp(mode, "decode") == 0 || strcmp(mode, "pieces") == 0)
            decode(t, mode, &frame, &text);
        else
            encode(t, mode, &frame, &tokens);
    }
    free(frame.bytes);
    tokens_free(&tokens);
    buffer_free(&text);
    tokenizer_close(t);
    return 0;
}
