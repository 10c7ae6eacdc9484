/* The input is an adapter_config.json and, after a zero byte, an adapter_model.safetensors in parts (fuzz_put_safetensors), for
 * the tiny model. An adapter that can be loaded is whole: each of its tensors is used, and no pair is without numbers. */
#include "model.h"

#include "models/lora.h"
#include "models/lora_model.h"
#include "run/session.h"

static void check(const struct session *s)
{
    for (int64_t i = 0; i < s->model.weights.count; i++)
        PROMISE(!s->model.weights.list[i].adapter || model_uses(&s->model, s->model.weights.list[i].name));
    for (int64_t i = 0; i < s->model.store.count; i++) {
        const struct tensor *t = s->model.store.tensor[i];
        const struct stored *from = lora_owns(t) ? model_source(&s->model, t) : NULL;
        PROMISE(!lora_owns(t) || (from && from->adapter && from->dtype >= 0));
        PROMISE(!from || from->part[0].bytes == tensor_elements(t) * dtype_size((enum dtype)from->dtype));
    }
}

static enum status load(struct session *s)
{
    int64_t index;
    TRY(session_add(s, NET_LOSS, 16, 16, 0, &index));
    TRY(session_plan(s));
    TRY(session_prepare(s));
    return lora_check(&s->model, s->tuning.lora);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static char adapter[256];
    struct fuzz_part input = {data, size}, config = fuzz_next(&input);
    struct session s;
    if (!*adapter) {
        snprintf(adapter, sizeof adapter, "%s", fuzz_path("adapter"));
        PROMISE(directory_make(adapter) == OK);
    }
    fuzz_put("adapter/adapter_config.json", config.data, config.size);
    fuzz_put_safetensors("adapter/adapter_model.safetensors", input);
    const struct session_options options = {
        .dir = fuzz_model(), .device = "cpu", .run = RUN_AUTO, .adapter = adapter, .weights = true};
    if (session_open(&s, &options) != OK)
        return;
    if (load(&s) == OK) {
        fuzz_accept();
        check(&s);
    }
    session_close(&s);
}
