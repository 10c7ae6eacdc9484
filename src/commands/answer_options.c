/* Options of answers; two of them are JSON. */
#include "commands/answer_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static enum status fail_stop(const char *source)
{
    return fail(ERR_ARGUMENT,
                "%s: a text that ends the answer, or several as a JSON list of texts that are not empty: [\"\\n\\n\", \"User:\"]",
                source);
}

static enum status take_stops(json_t *list, const char *source, struct arena *arena, struct answer *a)
{
    size_t count = json_array_size(list), i;
    const char **texts = arena_array(arena, (int64_t)count, (int64_t)sizeof *texts);
    json_t *text;
    if (!texts)
        return ERR_MEMORY;
    json_array_foreach(list, i, text)
    {
        if (!json_string_length(text) || strlen(json_string_value(text)) != json_string_length(text))
            return fail_stop(source);
        texts[i] = arena_text(arena, json_string_value(text), (int64_t)json_string_length(text));
        if (!texts[i])
            return ERR_MEMORY;
    }
    a->stop_texts = texts;
    a->stop_text_count = (int64_t)count;
    return OK;
}

/* A text that is no list is one text, also if it begins as one: [/INST]. A list with a mistake in it is none: ["a" */
static enum status read_stops(const char *text, const char *source, struct arena *arena, struct answer *a)
{
    json_t *list = NULL;
    json_error_t error;
    enum status status = json_load(&list, text, (int64_t)strlen(text), 0, &error);
    if (status == ERR_MEMORY)
        return status;
    if (!json_is_array(list)) {
        json_decref(list);
        if (!strncmp(text, "[\"", 2))
            return fail_stop(source);
        list = json_pack("[s]", text);
        if (!list)
            return json_refused() ? ERR_MEMORY : fail(ERR_ARGUMENT, "%s: the text is not valid UTF-8", source);
    }
    status = take_stops(list, source, arena, a);
    json_decref(list);
    return status;
}

static enum status fail_bias(const char *source)
{
    return fail(ERR_ARGUMENT, "%s: what is added to the logits of tokens, from -%d to %d, as a JSON object: {\"42\": -100}",
                source, BIAS_MAX, BIAS_MAX);
}

static enum status take_biases(json_t *object, const char *source, struct arena *arena, struct answer *a)
{
    int64_t count = (int64_t)json_object_size(object);
    int32_t *tokens = arena_array(arena, count, (int64_t)sizeof *tokens);
    float *biases = arena_array(arena, count, (int64_t)sizeof *biases);
    const char *key;
    json_t *value;
    if (!tokens || !biases)
        return ERR_MEMORY;
    a->sampling.bias_tokens = tokens;
    a->sampling.biases = biases;
    json_object_foreach(object, key, value)
    {
        char *end;
        long long token = strtoll(key, &end, 10);
        double bias = json_number_value(value);
        if (!*key || *end || token < 0 || token > INT32_MAX || !json_is_number(value) || !(bias >= -BIAS_MAX && bias <= BIAS_MAX))
            return fail_bias(source);
        *tokens++ = (int32_t)token;
        *biases++ = (float)bias;
    }
    a->sampling.bias_count = count;
    return OK;
}

static enum status read_biases(const char *text, const char *source, struct arena *arena, struct answer *a)
{
    json_t *object = NULL;
    json_error_t error;
    enum status status = json_load(&object, text, (int64_t)strlen(text), JSON_REJECT_DUPLICATES, &error);
    if (status == ERR_MEMORY)
        return status;
    status = json_is_object(object) ? take_biases(object, source, arena, a) : fail_bias(source);
    json_decref(object);
    return status;
}

enum status answer_options(const struct options *o, struct arena *arena, struct answer *a)
{
    *a = (struct answer){.sampling = {.temperature = o->temperature,
                                      .top_k = o->top_k,
                                      .top_p = o->top_p,
                                      .min_p = o->min_p,
                                      .repetition_penalty = o->repetition_penalty,
                                      .presence_penalty = o->presence_penalty,
                                      .frequency_penalty = o->frequency_penalty,
                                      .seed = (uint64_t)o->seed},
                         .max_new_tokens = o->max_new_tokens,
                         .logprobs = o->logprobs,
                         .prompt_logprobs = o->prompt_logprobs};
    if (o->stop)
        TRY(read_stops(o->stop, o->source[OPTION_stop], arena, a));
    return o->logit_bias ? read_biases(o->logit_bias, o->source[OPTION_logit_bias], arena, a) : OK;
}
