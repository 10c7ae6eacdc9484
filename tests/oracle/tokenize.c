/* Encodes what tokenizer.py sends: one JSON string a line in, one line of JSON out.
 *
 *     tokenize tokenizer.json            [id, ...]
 *     tokenize --offsets tokenizer.json  [[id, begin, end], ...]
 *     tokenize --time tokenizer.json     reads everything, prints times instead
 *
 * A text that cannot be encoded gives {"error": "..."}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "text/tokenizer.h"

enum mode { IDS, OFFSETS, TIME };

static double spent;
static long long bytes, ids;

static void print_tokens(const struct tokens *tokens, enum mode mode)
{
    putchar('[');
    for (int64_t i = 0; i < tokens->count; i++) {
        if (mode == IDS)
            printf("%s%d", i ? ", " : "", tokens->id[i]);
        else
            printf("%s[%d, %lld, %lld]", i ? ", " : "", tokens->id[i], (long long)tokens->begin[i], (long long)tokens->end[i]);
    }
    puts("]");
}

static int encode_line(const struct tokenizer *tokenizer, const char *line, int64_t length, struct tokens *tokens, enum mode mode)
{
    json_t *text = NULL;
    if (json_parse(&text, line, length, "stdin") != OK || !json_is_string(text)) {
        fprintf(stderr, "not a JSON string: %s", line);
        json_decref(text);
        return 1;
    }
    tokens->count = 0;
    double start = clock_seconds();
    enum status status = tokenizer_encode(tokenizer, json_string_value(text), (int64_t)json_string_length(text), tokens);
    spent += clock_seconds() - start;
    bytes += (long long)json_string_length(text);
    ids += tokens->count;
    if (status != OK) {
        json_t *error = json_pack("{s:s}", "error", status_message());
        char *dump = json_dumps(error, 0);
        puts(dump ? dump : "{}");
        free(dump);
        json_decref(error);
    } else if (mode != TIME) {
        print_tokens(tokens, mode);
    }
    json_decref(text);
    return 0;
}

int main(int argc, char **argv)
{
    enum mode mode = argc == 3 && strcmp(argv[1], "--offsets") == 0 ? OFFSETS
                     : argc == 3 && strcmp(argv[1], "--time") == 0  ? TIME
                                                                    : IDS;
    if (argc != 2 + (mode != IDS)) {
        fprintf(stderr, "usage: tokenize [--offsets | --time] tokenizer.json < lines of JSON strings\n");
        return 2;
    }
    struct tokenizer *tokenizer;
    double start = clock_seconds();
    enum status status = tokenizer_open(&tokenizer, argv[argc - 1]);
    double opened = clock_seconds() - start;
    if (status != OK) {
        fprintf(stderr, "%s\n", status_message());
        return (int)status;
    }
    struct tokens tokens = {0};
    char *line = NULL;
    size_t capacity = 0;
    int wrong = 0;
    for (ssize_t n; !wrong && (n = getline(&line, &capacity, stdin)) > 0;)
        wrong = encode_line(tokenizer, line, (int64_t)n, &tokens, mode);
    if (mode == TIME)
        printf("open %.1f ms, encode %.1f MB/s, %.2f million ids/s, %lld bytes\n", opened * 1e3, (double)bytes / spent / 1e6,
               (double)ids / spent / 1e6, bytes);
    free(line);
    tokens_free(&tokens);
    tokenizer_close(tokenizer);
    return wrong;
}
