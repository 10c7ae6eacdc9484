/* The input is a config.json and, after a zero byte, a model.safetensors in parts (fuzz_put_safetensors): plain, or quantised by
 * bitsandbytes, to MXFP4 or to FP8. What the programs of a model read of its files is as large as they take it to be. */
#include <string.h>

#include "base/directory.h"
#include "fuzz.h"
#include "run/session.h"

static void check(const struct session *s)
{
    for (int64_t i = 0; i < s->model.store.count; i++) {
        const struct tensor *t = s->model.store.tensor[i];
        const struct stored *from = model_source(&s->model, t);
        if (t->in_file && from && from->type == WEIGHT_DENSE)
            PROMISE(t->mapped == from->part[0].data && tensor_bytes(t) == from->part[0].bytes);
    }
}

/* Without the blocks of a large model: one config.json may ask for terabytes. */
static enum status load(struct session *s)
{
    int64_t index, mapped, bytes[LIFE_COUNT];
    TRY(session_add(s, NET_LOSS, 16, 16, 0, &index));
    TRY(session_plan(s));
    check(s);
    return session_bytes(s, bytes, &mapped) < 1 << 22 ? session_prepare(s) : OK;
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct fuzz_part input = {data, size}, config = fuzz_next(&input);
    struct session s;
    fuzz_put("config.json", config.data, config.size);
    fuzz_put_safetensors("model.safetensors", input);
    const struct session_options options = {.dir = fuzz_dir(), .device = "cpu", .run = RUN_AUTO, .weights = true};
    if (session_open(&s, &options) != OK)
        return;
    if (load(&s) == OK)
        fuzz_accept();
    else
        PROMISE(*status_message());
    session_close(&s);
}
