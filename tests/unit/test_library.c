/* Tokens, log-probabilities and sampling through hone.h, of a model and of a trainer. */
#include "test.h"

#include <math.h>

#include "failing.h"
#include "hone.h"
#include "hone_calls.h"
#include "tiny_model.h"

enum { MAX_TOKENS = 256 };

static struct tiny_model tiny;

#define check(call)                                                                                                              \
    do {                                                                                                                         \
        if ((call) != HONE_OK)                                                                                                   \
            fail_msg("%s: %s", #call, hone_error());                                                                             \
    } while (0)

static hone_options *make_options(const char *command)
{
    hone_options *o = NULL;
    check(hone_options_create(&o, command));
    check(hone_options_set(o, "model", tiny.dir));
    check(hone_options_set(o, "dtype", "float32"));
    return o;
}

static hone_model *open_model(void)
{
    hone_options *o = make_options("generate");
    hone_model *m = NULL;
    check(hone_model_open(&m, o));
    hone_options_destroy(o);
    return m;
}

static hone_trainer *open_trainer(void)
{
    hone_options *o = make_options("train");
    hone_trainer *t = NULL;
    check(hone_options_set(o, "micro_batch_tokens", "128"));
    check(hone_options_set(o, "sample_length", "128"));
    check(hone_trainer_open(&t, o, &(hone_trainer_uses){.size = sizeof(hone_trainer_uses), .samples = 1, .logprobs = 1}));
    hone_options_destroy(o);
    return t;
}

static hone_sequence *encode(hone_model *m, const char *json, unsigned flags)
{
    hone_sequence *made = NULL;
    check(hone_encode_chat(m, json, flags, &made));
    return made;
}

static void is_text(hone_model *m, const int32_t *ids, int64_t count, unsigned flags, const char *want)
{
    char *text = NULL;
    size_t length = 0;
    check(hone_detokenize(m, ids, count, flags, &text, &length));
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
    hone_text_destroy(text);
}

/* --- tokens ---------------------------------------------------------------------------------------------------------------- */

static void texts_become_tokens_and_back(void **state)
{
    (void)state;
    static const char text[] = "Grüße <|im_end|> 🙂";
    hone_model *m = open_model();
    hone_sequence *made = NULL;
    check(hone_tokenize(m, text, strlen(text), 0, &made));
    assert_null(made->weights);
    assert_int_equal(made->count, strlen(text) - strlen("<|im_end|>") + 1);
    is_text(m, made->ids, made->count, HONE_DETOKENIZE_SPECIAL, text);
    is_text(m, made->ids, made->count, 0, "Grüße  🙂");
    is_text(m, made->ids, made->count - 1, 0, "Grüße  \xef\xbf\xbd"); /* half a character */
    is_text(m, NULL, 0, 0, "");
    hone_sequence_destroy(made);
    check(hone_tokenize(m, NULL, 0, 0, &made));
    assert_int_equal(made->count, 0);
    hone_sequence_destroy(made);
    hone_model_close(m);
}

#define ASKED "{\"role\": \"user\", \"content\": \"Why <|im_end|>?\"}"
#define SAID "{\"role\": \"assistant\", \"content\": \"So.\"}"

/* Breaks if the mask is not that of training, or if what a user types becomes a special token. */
static void chats_become_tokens_with_the_mask_of_training(void **state)
{
    (void)state;
    hone_model *m = open_model();
    hone_sequence *made = encode(m, "{\"messages\": [" ASKED ", " SAID "]}", 0);
    int32_t trained[MAX_TOKENS];
    int64_t count = 0, ends = 0;
    for (int64_t i = 0; i < made->count; i++) {
        assert_true(made->weights[i] == 0 || made->weights[i] == 1);
        if (made->weights[i] != 0)
            trained[count++] = made->ids[i];
        ends += made->ids[i] == 2;
    }
    is_text(m, trained, count, HONE_DETOKENIZE_SPECIAL, "So.<|im_end|>");
    assert_int_equal(ends, 2); /* of two messages; the third was typed */
    hone_sequence_destroy(made);
    made = encode(m, "{\"messages\": [" ASKED "]}", HONE_CHAT_PROMPT);
    is_text(m, made->ids, made->count, HONE_DETOKENIZE_SPECIAL,
            "<|im_start|>user\nWhy <|im_end|>?<|im_end|>\n<|im_start|>assistant\n");
    for (int64_t i = 0; i < made->count; i++)
        assert_true(made->weights[i] == 0);
    hone_sequence_destroy(made);
    made = encode(m, "{\"prompt\": \"Why?\", \"completion\": \"So.\"}", 0); /* any row of a data set */
    is_text(m, made->ids, made->count, HONE_DETOKENIZE_SPECIAL,
            "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nSo.<|im_end|>\n");
    assert_true(made->weights[0] == 0 && made->weights[made->count - 2] == 1);
    hone_sequence_destroy(made);
    hone_model_close(m);
}

/* --- log-probabilities ------------------------------------------------------------------------------------------------------ */

static const int32_t long_ids[] = {9,  30, 41, 52, 63, 74, 85, 96, 17, 28, 39, 50, 61, 72, 83, 94, 15, 26, 37, 48,
                                   59, 70, 81, 92, 13, 24, 35, 46, 57, 68, 79, 90, 11, 22, 33, 44, 55, 66, 77, 88};
enum { LONG = sizeof long_ids / sizeof long_ids[0], MANY = 70 };

static double minus_sum(const float *logprobs, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum -= (double)logprobs[i];
    return sum;
}

/* Breaks if a loss is given to another token, or if micro-batches are put together wrongly. */
static void log_probabilities_are_the_losses_of_training(void **state)
{
    (void)state;
    hone_model *m = open_model();
    hone_trainer *t = open_trainer();
    static float weights[LONG], all[MANY * LONG], again[MANY * LONG], one[LONG];
    hone_sequence sequences[MANY];
    int64_t tokens = 0;
    for (int64_t i = 0; i < LONG; i++)
        weights[i] = i % 3 != 0;
    for (int64_t s = 0; s < MANY; s++) {
        sequences[s] = (hone_sequence){long_ids + s % 7, s % 2 ? weights : NULL, 1 + s % (LONG - 7)};
        tokens += sequences[s].count;
    }
    hone_loss_sum loss = {.size = sizeof loss};
    check(score_model(m, sequences, MANY, all));
    check(score_trainer(t, sequences, MANY, again));
    check(add_sequences(t, sequences, MANY, &loss));
    assert_true(fabs(minus_sum(all, tokens) - loss.sum) < 1e-5 * loss.sum);
    assert_true(fabs(minus_sum(again, tokens) - loss.sum) < 1e-5 * loss.sum);
    const float *at = all;
    for (int64_t s = 0; s < MANY; at += sequences[s].count, s++) { /* alone, and among others */
        check(score_model(m, &sequences[s], 1, one));
        for (int64_t i = 0; i < sequences[s].count; i++) {
            assert_true(fabsf(one[i] - at[i]) < 1e-4f);
            assert_true((i == 0 || (sequences[s].weights && weights[i] == 0)) == (at[i] == 0));
        }
    }
    hone_step step = {.size = sizeof step};
    check(step_at(t, 0.01, &step));
    check(score_trainer(t, sequences, MANY, again));
    assert_true(minus_sum(again, tokens) < minus_sum(all, tokens)); /* of the model as it is now */
    check(score_model(m, NULL, 0, NULL));
    hone_trainer_close(t);
    hone_model_close(m);
}

/* --- sampling --------------------------------------------------------------------------------------------------------------- */

struct said {
    int32_t ids[MAX_TOKENS];
    double logprobs[MAX_TOKENS];
    int64_t count, stop_after; /* 0: never */
    char text[4 * MAX_TOKENS];
};

static int take(void *context, const hone_token *token)
{
    struct said *s = context;
    strncat(s->text, token->text, token->length);
    if (token->id < 0 || token->of_prompt)
        return 0;
    s->ids[s->count] = token->id;
    s->logprobs[s->count++] = token->logprob;
    return s->count == s->stop_after;
}

static hone_generate_result sample(hone_model *m, const int32_t *ids, int64_t count, hone_sampling sampling, struct said *said)
{
    hone_generate_result r = {.size = sizeof r};
    sampling.size = sizeof sampling;
    *said = (struct said){0};
    check(hone_sample_tokens(m, ids, count, &sampling, take, said, &r));
    assert_int_equal(r.new_tokens, said->count);
    return r;
}

static void same(const struct said *a, const struct said *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof a->ids[0]);
    assert_string_equal(a->text, b->text);
}

static void sampling_follows_its_settings(void **state)
{
    (void)state;
    hone_model *m = open_model();
    struct said greedy, drawn, again, other;
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24}, &greedy);
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24, .temperature = 1.5, .seed = 1}, &drawn);
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24, .temperature = 1.5, .top_p = 1, .seed = 1}, &again);
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24, .temperature = 1.5, .seed = 2}, &other);
    same(&drawn, &again);
    assert_true(memcmp(drawn.ids, other.ids, sizeof drawn.ids) != 0 && memcmp(drawn.ids, greedy.ids, sizeof drawn.ids) != 0);
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24, .temperature = 1.5, .top_p = 1e-9, .seed = 3}, &again);
    same(&greedy, &again); /* of so small a part only the most likely token is left */

    int32_t stops[] = {3, drawn.ids[4]}; /* as it is drawn, but ended */
    hone_generate_result r = sample(
        m, long_ids, LONG,
        (hone_sampling){.max_new_tokens = 24, .temperature = 1.5, .seed = 1, .stop_tokens = stops, .stop_count = 2}, &again);
    assert_true(r.ended && again.count <= 5 && again.ids[again.count - 1] == stops[again.count < 5 ? 0 : 1]);
    hone_model_close(m);
}

/* Breaks if the sink's numbers are of another temperature or another position. */
static void the_sink_gets_the_log_probabilities(void **state)
{
    (void)state;
    hone_model *m = open_model();
    struct said said;
    int32_t ids[LONG + MAX_TOKENS];
    float logprobs[LONG + MAX_TOKENS];
    sample(m, long_ids, LONG, (hone_sampling){.max_new_tokens = 24, .temperature = 2, .top_p = 0.9, .seed = 5}, &said);
    memcpy(ids, long_ids, sizeof long_ids);
    memcpy(ids + LONG, said.ids, (size_t)said.count * sizeof *ids);
    check(score_model(m, &(hone_sequence){ids, NULL, LONG + said.count}, 1, logprobs));
    for (int64_t i = 0; i < said.count; i++)
        assert_true(fabs(said.logprobs[i] - (double)logprobs[LONG + i]) < 1e-3);
    hone_model_close(m);
}

static int64_t next_character(const char *text, int64_t at)
{
    while ((text[++at] & 0xc0) == 0x80)
        ;
    return at;
}

/* Each piece of an answer, long or short, ends another answer where it first begins; what only begins like a stop text is passed
 * on. Seen to fail: with a search in each token's own text, with a stop text found in the first place of the list instead of the
 * text, with the beginning of a stop text held for good. */
static void an_answer_ends_where_a_stop_text_begins(void **state)
{
    (void)state;
    hone_model *m = open_model();
    struct said whole, cut;
    hone_sampling sampling = {.max_new_tokens = 40, .temperature = 1.5, .seed = 1};
    hone_generate_result full = sample(m, long_ids, LONG, sampling, &whole), r;
    int64_t ends = 0, size = (int64_t)strlen(whole.text);
    assert_true(size > 20);
    for (int64_t at = 0; at < size; at = next_character(whole.text, at))
        for (int64_t end = at, letters = 0; letters++ < 5 && end < size;) {
            char stop[64] = "", longer[128];
            const char *const texts[] = {longer, stop};
            end = next_character(whole.text, end);
            memcpy(stop, whole.text + at, (size_t)(end - at));
            snprintf(longer, sizeof longer, "%s and what is not said", stop);
            sampling.stop_texts = texts;
            sampling.stop_text_count = 1;
            r = sample(m, long_ids, LONG, sampling, &cut);
            same(&whole, &cut);
            assert_int_equal(r.ended, full.ended);
            sampling.stop_text_count = 2;
            r = sample(m, long_ids, LONG, sampling, &cut);
            int64_t first = strstr(whole.text, stop) - whole.text;
            assert_int_equal(strlen(cut.text), first);
            assert_memory_equal(cut.text, whole.text, (size_t)first);
            assert_memory_equal(cut.ids, whole.ids, (size_t)cut.count * sizeof *cut.ids);
            assert_true(r.ended);
            ends += cut.count < whole.count;
        }
    assert_true(ends > 20);
    hone_model_close(m);
}

/* --- log-probabilities of the most likely tokens, and of the prompt --- */

struct top {
    int64_t prompt, count;
    float prompt_logprobs[LONG];
    struct said said;
};

static int take_top(void *context, const hone_token *token)
{
    struct top *t = context;
    double before = 0;
    bool found = false;
    if (token->id >= 0)
        assert_int_equal(token->top_count, !token->of_prompt ? 5 : t->prompt ? 3 : 0);
    for (int64_t i = 0; i < token->top_count; i++) {
        assert_true(token->top_logprobs[i] <= before);
        before = token->top_logprobs[i];
        found |= token->top_ids[i] == token->id && token->top_logprobs[i] == token->logprob;
    }
    assert_true(found || token->top_count == 0 || token->logprob <= before);
    if (token->of_prompt) {
        assert_int_equal(token->id, long_ids[t->prompt]);
        assert_true(token->length == 0 && t->said.count == 0);
        t->prompt_logprobs[t->prompt++] = (float)token->logprob;
        return 0;
    }
    t->count += token->id >= 0;
    return take(&t->said, token);
}

/* Seen to fail: with the alternatives of the token before, with log-probabilities of the biased logits, with the prompt's tokens
 * one place too late. */
static void the_sink_gets_the_most_likely_tokens_and_those_of_the_prompt(void **state)
{
    (void)state;
    hone_model *m = open_model();
    hone_generate_result r = {.size = sizeof r};
    float logprobs[LONG];
    const int32_t biased[] = {7};
    const float biases[] = {100};
    struct said plain;
    struct top top = {0};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 12, .temperature = 1.5, .seed = 2};
    sample(m, long_ids, LONG, sampling, &plain);
    sampling.logprobs = 5;
    sampling.prompt_logprobs = 3;
    check(hone_sample_tokens(m, long_ids, LONG, &sampling, take_top, &top, &r));
    assert_true(top.prompt == LONG && r.reused_tokens == 0 && top.count == plain.count);
    same(&plain, &top.said);
    check(score_model(m, &(hone_sequence){long_ids, NULL, LONG}, 1, logprobs));
    for (int i = 0; i < LONG; i++)
        assert_true(fabsf(top.prompt_logprobs[i] - logprobs[i]) < 1e-3f);

    sampling = (hone_sampling){.size = sizeof sampling, .max_new_tokens = 3, .logprobs = 5};
    sampling.bias_tokens = biased;
    sampling.biases = biases;
    sampling.bias_count = 1;
    top = (struct top){0};
    check(hone_sample_tokens(m, long_ids, LONG, &sampling, take_top, &top, &r));
    assert_true(top.said.ids[0] == 7 && top.said.ids[1] == 7 && top.said.logprobs[0] < -0.1);
    hone_model_close(m);
}

/* Breaks if an option is left out, or a list dies before its model. */
static void options_say_how_tokens_are_chosen(void **state)
{
    (void)state;
    static const char *const values[][2] = {{"max_new_tokens", "9"},
                                            {"temperature", "0.5"},
                                            {"top_k", "3"},
                                            {"top_p", "0.25"},
                                            {"min_p", "0.125"},
                                            {"repetition_penalty", "1.5"},
                                            {"presence_penalty", "-1.5"},
                                            {"seed", "11"},
                                            {"logit_bias", "{\"5\": -2.5}"},
                                            {"frequency_penalty", "2"},
                                            {"logprobs", "4"},
                                            {"stop", "[\"a\", \"\\n\\n\"]"},
                                            {"prompt_logprobs", "6"}};
    static const char *const wrong[][3] = {{"stop", "[\"\"]", "not empty"},
                                           {"stop", "[1]", "JSON list of texts"},
                                           {"logit_bias", "5", "JSON object"},
                                           {"logit_bias", "{\"x\": 1}", "JSON object"},
                                           {"logit_bias", "{\"5\": 101}", "from -100 to 100"}};
    hone_options *o = make_options("generate");
    hone_model *m = NULL;
    hone_sampling s = {.size = sizeof s};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check(hone_options_set(o, wrong[i][0], wrong[i][1]));
        assert_int_equal(hone_model_open(&m, o), HONE_ERR_ARGUMENT);
        assert_non_null(strstr(hone_error(), wrong[i][2]));
        check(hone_options_set(o, wrong[i][0], NULL));
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check(hone_options_set(o, values[i][0], values[i][1]));
    check(hone_model_open(&m, o));
    hone_options_destroy(o);
    check(hone_model_sampling(m, &s));
    assert_true(s.max_new_tokens == 9 && s.temperature == 0.5 && s.top_k == 3 && s.top_p == 0.25 && s.min_p == 0.125);
    assert_true(s.repetition_penalty == 1.5 && s.presence_penalty == -1.5 && s.frequency_penalty == 2 && s.seed == 11);
    assert_true(s.bias_count == 1 && s.bias_tokens[0] == 5 && s.biases[0] == -2.5f && s.logprobs == 4 && s.prompt_logprobs == 6);
    assert_true(s.stop_text_count == 2 && !strcmp(s.stop_texts[0], "a") && !strcmp(s.stop_texts[1], "\n\n"));
    hone_model_close(m);

    o = make_options("generate"); /* what begins like a list may be a text */
    check(hone_options_set(o, "stop", "[/INST]"));
    check(hone_model_open(&m, o));
    hone_options_destroy(o);
    check(hone_model_sampling(m, &s));
    assert_true(s.stop_text_count == 1 && !strcmp(s.stop_texts[0], "[/INST]") && s.top_p == 1 && s.bias_count == 0);
    hone_model_close(m);
}

/* Breaks if keys of other tokens, or of too many, are taken for those of the prompt. */
static void what_the_model_still_knows_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        int64_t from, count, reused;
    } prompts[] = {{0, 20, 0}, {0, LONG, 20}, {0, LONG, LONG - 1}, {0, 10, 9}, {5, 30, 0}, {5, 12, 11}, {0, LONG, 0}};
    hone_model *kept = open_model();
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        hone_model *fresh = open_model();
        struct said a, b;
        hone_sampling sampling = {.max_new_tokens = i == 1 ? 100 : 12, .temperature = 1, .seed = 9};
        hone_generate_result r = sample(kept, long_ids + prompts[i].from, prompts[i].count, sampling, &a);
        hone_generate_result first = sample(fresh, long_ids + prompts[i].from, prompts[i].count, sampling, &b);
        assert_int_equal(r.reused_tokens, prompts[i].reused);
        assert_int_equal(first.reused_tokens, 0);
        same(&a, &b);
        hone_model_close(fresh);
    }
    hone_model_close(kept);
}

static void an_answer_ends_with_the_window_and_when_it_is_stopped(void **state)
{
    (void)state;
    hone_model *m = open_model();
    static int32_t ids[512];
    struct said said;
    hone_generate_result r = {.size = sizeof r};
    for (int i = 0; i < 512; i++)
        ids[i] = 10 + i % 90;
    r = sample(m, ids, 500, (hone_sampling){.max_new_tokens = 200, .temperature = 1, .seed = 4}, &said);
    assert_true(r.new_tokens <= 12 && (r.ended || r.new_tokens == 12));
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 20};
    said = (struct said){.stop_after = 3};
    assert_int_equal(hone_sample_tokens(m, long_ids, LONG, &sampling, take, &said, &r), HONE_ERR_STOPPED);
    assert_int_equal(r.new_tokens, 3);
    check(hone_sample_tokens(m, long_ids, LONG, &sampling, NULL, NULL, &r));
    hone_model_close(m);
}

static void a_trainer_samples_the_model_as_it_is_now(void **state)
{
    (void)state;
    hone_model *m = open_model();
    hone_trainer *t = open_trainer();
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 12, .temperature = 1, .seed = 8};
    hone_generate_result r = {.size = sizeof r};
    struct said want, first = {0}, then = {0};
    sample(m, long_ids, LONG, sampling, &want);
    check(hone_trainer_sample_tokens(t, long_ids, LONG, &sampling, take, &first, &r));
    same(&want, &first);
    hone_loss_sum loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    for (int i = 0; i < 5; i++) {
        check(add_sequences(t, &(hone_sequence){long_ids, NULL, LONG}, 1, &loss));
        check(step_at(t, 0.05, &step));
    }
    check(hone_trainer_sample_tokens(t, long_ids, LONG, &sampling, take, &then, &r));
    assert_true(memcmp(first.ids, then.ids, sizeof first.ids) != 0 && r.reused_tokens == 0);
    hone_trainer_close(t);
    hone_model_close(m);
}

/* --- the rest --------------------------------------------------------------------------------------------------------------- */

static void an_option_can_be_put_back(void **state)
{
    (void)state;
    hone_options *o = make_options("generate");
    const char *value;
    check(hone_options_set(o, "adapter", "somewhere"));
    check(hone_options_set(o, "top_p", "0.5"));
    check(hone_options_set(o, "adapter", NULL));
    check(hone_options_set(o, "top-p", NULL));
    check(hone_options_get(o, "adapter", &value));
    assert_string_equal(value, "");
    check(hone_options_get(o, "top_p", &value));
    assert_string_equal(value, "1");
    hone_options_destroy(o);
}

static hone_status use_all(const hone_options *o)
{
    hone_model *m = NULL;
    hone_sequence *tokens = NULL, *chat = NULL;
    char *text = NULL;
    float logprobs[LONG];
    hone_generate_result r = {.size = sizeof r};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 3, .temperature = 1};
    struct said said = {0};
    hone_status status = hone_model_open(&m, o);
    if (status == HONE_OK)
        status = hone_tokenize(m, "Hi there", 8, HONE_TOKENIZE_SPECIAL, &tokens);
    if (status == HONE_OK)
        status = hone_detokenize(m, tokens->ids, tokens->count, 0, &text, NULL);
    if (status == HONE_OK)
        status = hone_encode_chat(m, "{\"messages\": [" ASKED "]}", HONE_CHAT_PROMPT, &chat);
    if (status == HONE_OK)
        status = hone_sample_tokens(m, chat->ids, chat->count, &sampling, take, &said, &r);
    if (status == HONE_OK)
        status = score_model(m, &(hone_sequence){long_ids, NULL, LONG}, 1, logprobs);
    if (status == HONE_OK)
        status = hone_sample_tokens(m, chat->ids, chat->count, &sampling, take, &said, &r);
    hone_text_destroy(text);
    hone_sequence_destroy(tokens);
    hone_sequence_destroy(chat);
    hone_model_close(m);
    return status;
}

/* Each allocation fails once: each time it ends cleanly, with its own code. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    hone_options *o = make_options("generate");
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        failing_end(&f, (enum status)use_all(o));
    }
    print_message("%lld allocations\n", (long long)f.made);
    assert_true(f.failed > 100);
    hone_options_destroy(o);
}

static int make_model(void **state)
{
    *state = &tiny;
    tiny_model_make(&tiny, true);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_tokens_and_back),
        cmocka_unit_test(chats_become_tokens_with_the_mask_of_training),
        cmocka_unit_test(log_probabilities_are_the_losses_of_training),
        cmocka_unit_test(sampling_follows_its_settings),
        cmocka_unit_test(the_sink_gets_the_log_probabilities),
        cmocka_unit_test(an_answer_ends_where_a_stop_text_begins),
        cmocka_unit_test(the_sink_gets_the_most_likely_tokens_and_those_of_the_prompt),
        cmocka_unit_test(options_say_how_tokens_are_chosen),
        cmocka_unit_test(what_the_model_still_knows_changes_nothing),
        cmocka_unit_test(an_answer_ends_with_the_window_and_when_it_is_stopped),
        cmocka_unit_test(a_trainer_samples_the_model_as_it_is_now),
        cmocka_unit_test(an_option_can_be_put_back),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
