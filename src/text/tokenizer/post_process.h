/* The "post_processor" of a tokenizer.json: the tokens before and after a text. */
#ifndef TEXT_TOKENIZER_POST_PROCESS_H
#define TEXT_TOKENIZER_POST_PROCESS_H

#include "base/json.h"
#include "base/memory.h"

enum { POST_PROCESS_MAX = 64 };

struct post_process {
    int32_t before[POST_PROCESS_MAX], after[POST_PROCESS_MAX];
    int before_count, after_count;
};

/* json may be NULL or null: nothing is added. Ids are below `limit`. */
enum status post_process_open(struct post_process *post, const json_t *json, int64_t limit, const char *where);

#endif
