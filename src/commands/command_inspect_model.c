/* hone inspect model: what a model directory holds, as JSON. */
#include "base/record.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "text/chat/chat.h"

static json_t *rope_json(const void *record)
{
    return json_string(rope_kind_name(((const struct model_config *)record)->rope.kind));
}

static json_t *inspect_model_config_json(const struct model_config *config)
{
    static const struct record_field fields[] = {
        RECORD(struct model_config, layers),
        RECORD_AS("hidden_size", struct model_config, channels),
        RECORD(struct model_config, heads),
        RECORD(struct model_config, kv_heads),
        RECORD(struct model_config, head_size),
        RECORD(struct model_config, feed_forward),
        RECORD(struct model_config, vocabulary),
        RECORD(struct model_config, window),
        RECORD_AS("rms_norm_eps", struct model_config, eps),
        RECORD_MADE("rope", rope_json),
        RECORD_AS("rope_theta", struct model_config, rope.theta),
        RECORD_AS("tied_embeddings", struct model_config, tied),
        {0},
    };
    return record_json(fields, config);
}

static json_t *inspect_model_files_json(const struct model *m)
{
    int64_t bytes = 0, elements = 0;
    json_t *types = json_object();
    for (int64_t i = 0; i < m->weights.count; i++) {
        const struct stored *f = &m->weights.list[i];
        for (int k = 0; k < WEIGHT_PARTS; k++)
            bytes += f->part[k].bytes;
        elements += shape_elements(f->rank, f->shape);
        json_int_t count = json_integer_value(json_object_get(types, f->kind));
        json_object_set_new(types, f->kind, json_integer(count + 1));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "tensors", (json_int_t)m->weights.count, "elements", (json_int_t)elements, "bytes",
                     (json_int_t)bytes, "tensors_by_type", types);
}

static json_t *text_json(const struct chat *chat)
{
    int64_t count;
    const int32_t *eos = chat_eos(chat, &count);
    json_t *ids = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(ids, json_integer(eos[i]));
    return json_pack("{s:I, s:o}", "vocabulary", (json_int_t)tokenizer_vocabulary(chat_tokenizer(chat)), "end_of_turn", ids);
}

/* Builds the smallest program, so that a missing tensor or a wrong shape is found here and not in a run. */
enum status command_inspect_model(const struct options *given, enum user_command command, json_t **report)
{
    struct options values;
    struct session s;
    struct chat *chat = NULL;
    int64_t index;
    TRY(named_model_find(given, command, &values));
    struct session_options options = {
        .dir = values.model_name_or_path, .device = "cpu", .run = RUN_FLOAT32, .weights = true, .compared = true};
    TRY(session_open(&s, &options));
    enum status status = session_add(&s, NET_LOGITS, 1, 1, 0, &index);
    if (status == OK)
        status = session_plan(&s);
    if (status == OK)
        status = chat_open(&chat, values.model_name_or_path);
    if (status == OK)
        *report = json_pack("{s:s, s:I, s:o, s:o, s:o}", "family", s.model.family->model_type, "parameters",
                            (json_int_t)s.model.parameters, "config", inspect_model_config_json(&s.model.config), "weights",
                            inspect_model_files_json(&s.model), "tokenizer", text_json(chat));
    chat_close(chat);
    session_close(&s);
    return status;
}
