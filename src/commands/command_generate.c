/* A prompt and its answer, by a model that is opened for them. */
#include "commands/command_generate.h"

#include "base/number.h"
#include "commands/named_model.h"
#include "data/data.h"

enum status command_generate_check(const struct options *options, enum user_command command)
{
    TRY(options_need(options, command, OPTION_prompt));
    return *options->prompt ? OK : fail(ERR_ARGUMENT, "the prompt is empty: give --prompt TEXT");
}

static enum status generate_run(struct session *s, const struct options *values, const struct answer *how,
                                const struct chat *chat, struct stream *stream, const struct chat_row *row,
                                struct answered *answered)
{
    struct generator g = {0};
    int64_t window = s->model.config.window, tokens = row->tokens.count, slots = tokens + values->max_new_tokens;
    if (!tokens)
        return fail(ERR_ARGUMENT, "the prompt is empty: give --prompt TEXT");
    TRY(data_check_ids(row->tokens.id, tokens, s->model.config.vocabulary));
    if (!values->source[OPTION_max_new_tokens]) /* nobody asked for so many */
        slots = min(slots, max(window, tokens + 1));
    if (slots > window)
        return fail(ERR_ARGUMENT,
                    "the prompt's %lld tokens and --max-new-tokens %lld are more than the model's window of %lld: lower "
                    "--max-new-tokens, or shorten the prompt",
                    (long long)tokens, (long long)values->max_new_tokens, (long long)window);
    struct answer answer = *how;
    answer.generator = &g;
    answer.chat = chat;
    TRY(answer_check(&answer, s->model.config.vocabulary, "hone generate"));
    enum status status = generate_add(&g, s, slots, tokens);
    if (status == OK)
        status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    if (status == OK)
        status = answer_prompt(&answer, stream, row->tokens.id, row->tokens.count, answered);
    generate_free(&g);
    return status;
}

static enum status open_and_run(const struct options *options, const struct answer *how, const struct chat *chat,
                                struct stream *stream, struct chat_row *row, struct answered *answered)
{
    struct session s;
    TRY(answer_encode(chat, options->system, options->prompt, options->raw, row));
    TRY(named_model_open(&s, options, true));
    enum status status = generate_run(&s, options, how, chat, stream, row, answered);
    session_close(&s);
    return status;
}

enum status command_generate(const struct options *options, const struct answer *how, const struct chat *chat,
                             struct stream *stream, struct answered *answered)
{
    struct chat_row row = {0};
    enum status status = open_and_run(options, how, chat, stream, &row, answered);
    chat_row_free(&row);
    return status;
}
