/* hone chat: a conversation line by line. Answers go to standard output as they are generated, all else to standard error.
 *
 * What is typed is a message, or a command that begins with a slash. At a terminal Ctrl-C stops an answer, errors are reported
 * and the conversation continues; lines from a file or a pipe end with the first error, whose status is the exit code.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"

#define PROMPT "> "

enum { SAY_SIZE = 8192 };

struct chat {
    hone_options *options;
    hone_model *model;
    hone_sampling sampling;
    json_t *messages; /* the conversation, without the system message */
    char *system;     /* NULL: none */
    bool typed, ends;
    bool json; /* one object a turn, instead of text as it comes */
};

__attribute__((format(printf, 2, 3))) static void say(const struct chat *c, const char *format, ...)
{
    char text[SAY_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->typed)
        progress_say("%s", text);
}

static hone_status no_memory(void)
{
    return (hone_status)fail(ERR_MEMORY, "out of memory: the conversation");
}

/* Freed by memory_free. NULL: out of memory. */
static char *chat_copy_text(const char *text)
{
    char *copy = memory_alloc((int64_t)strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* --- the model ------------------------------------------------------------------------------------------------------------ */

/* A token is asked for, so that what is wrong with the model or the adapter is said now, and the first answer begins at once. */
static hone_status chat_open_model(struct chat *c)
{
    static const char greeting[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    hone_sequence *prompt = NULL;
    hone_sampling one = {.size = sizeof one, .max_new_tokens = 1};
    hone_generate_result r = {.size = sizeof r};
    hone_status status = hone_model_open(&c->model, c->options);
    c->sampling = (hone_sampling){.size = sizeof c->sampling};
    if (status == HONE_OK)
        status = hone_model_sampling(c->model, &c->sampling);
    if (status == HONE_OK)
        status = hone_encode_chat(c->model, greeting, HONE_CHAT_PROMPT, &prompt);
    if (status == HONE_OK)
        status = hone_sample_tokens(c->model, prompt->ids, prompt->count, &one, NULL, NULL, &r);
    hone_sequence_destroy(prompt);
    if (status != HONE_OK) {
        hone_model_close(c->model);
        c->model = NULL;
    }
    return status;
}

/* --- messages ------------------------------------------------------------------------------------------------------------- */

static hone_status add_message(struct chat *c, const char *role, const char *content, bool whole)
{
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", content);
    if (message && !whole)
        json_object_set_new(message, "train", json_false());
    if (message && json_array_append_new(c->messages, message) == 0)
        return HONE_OK;
    return json_refused() ? no_memory() : (hone_status)fail(ERR_ARGUMENT, "what was typed is not valid UTF-8");
}

static void forget_last(struct chat *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* The conversation as a row of a data set, on one line, as json_write gives it. */
static char *write_row(const struct chat *c)
{
    json_t *messages = json_array(), *row = json_object();
    if (c->system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    json_array_extend(messages, c->messages);
    json_object_set_new(row, "messages", messages);
    char *text = json_write(row, 0);
    json_decref(row);
    return text;
}

/* An answer as it comes. */
struct answer {
    const struct chat *chat;
    struct buffer text;
};

static int chat_print(void *context, const hone_token *token)
{
    struct answer *a = context;
    if (!a->chat->json) {
        out_answer(stdout, token->text, token->length);
        fflush(stdout);
    }
    bool kept = buffer_append(&a->text, token->text, (int64_t)token->length) == OK;
    return !kept || (a->chat->typed ? signals_interrupted() : signals_stopped());
}

static hone_status chat_ask(struct chat *c, struct answer *a, hone_generate_result *r)
{
    hone_sequence *prompt = NULL;
    char *row = write_row(c);
    hone_status status = row ? hone_encode_chat(c->model, row, HONE_CHAT_PROMPT, &prompt) : HONE_ERR_MEMORY;
    if (status == HONE_OK) {
        (void)signals_interrupted(); /* what was pressed before the question */
        if (c->typed)
            signals_interrupts("");
        status = hone_sample_tokens(c->model, prompt->ids, prompt->count, &c->sampling, chat_print, a, r);
    }
    if (status == HONE_ERR_LIMIT) {
        char why[512];
        snprintf(why, sizeof why, "%s", hone_error());
        status =
            (hone_status)fail(ERR_LIMIT, "the conversation is too long: %s. /save FILE keeps it, /reset begins a new one", why);
    }
    hone_sequence_destroy(prompt);
    json_text_free(row);
    return status;
}

static void print_turn(const char *message, const struct answer *a, const hone_generate_result *r, bool stopped)
{
    json_t *turn =
        json_pack("{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:f, s:f}", "message", message, "answer", a->text.data ? a->text.data : "",
                  "ended", r->ended, "stopped", (int)stopped, "prompt_tokens", (json_int_t)r->prompt_tokens, "reused_tokens",
                  (json_int_t)r->reused_tokens, "new_tokens", (json_int_t)r->new_tokens, "prefill_seconds", r->prefill_seconds,
                  "decode_seconds", r->decode_seconds);
    cli_print_json(turn);
    fflush(stdout);
}

/* A message that gets no answer is no part of the conversation. */
static hone_status answer_message(struct chat *c, const char *message)
{
    struct answer a = {.chat = c};
    hone_generate_result r = {.size = sizeof r};
    hone_status status = add_message(c, "user", message, true);
    if (status != HONE_OK)
        return status;
    status = chat_ask(c, &a, &r);
    bool stopped = status == HONE_ERR_STOPPED;
    if (c->json && (stopped || status == HONE_OK))
        print_turn(message, &a, &r, stopped);
    else if (stopped || status == HONE_OK)
        out_print("\n");
    bool goes_on = status == HONE_OK || (stopped && c->typed);
    if (stopped && goes_on)
        say(c, "(stopped)");
    else if (goes_on && !r.ended && r.new_tokens < c->sampling.max_new_tokens)
        say(c, "(cut off: the model's window is full; /reset begins a new conversation)");
    else if (goes_on && !r.ended)
        say(c, "(cut off after %lld tokens: --max-new-tokens)", (long long)r.new_tokens);
    if (goes_on)
        status = add_message(c, "assistant", a.text.data ? a.text.data : "", r.ended);
    if (!goes_on || status != HONE_OK)
        forget_last(c);
    buffer_free(&a.text);
    return status;
}

/* --- commands ------------------------------------------------------------------------------------------------------------- */

/* A chat that was started with only an adapter stays with the base that it named. */
static hone_status keep_base(struct chat *c)
{
    const char *model, *base;
    char *report = NULL;
    json_t *tree = NULL;
    hone_status status = hone_options_get(c->options, "model", &model);
    if (status == HONE_OK && !*model && hone_inspect_adapter(c->options, &report) == HONE_OK)
        status = (hone_status)json_parse(&tree, report, (int64_t)strlen(report), "report");
    base = json_string_value(json_object_get(tree, "base"));
    if (base)
        status = hone_options_set(c->options, "model", base);
    json_decref(tree);
    hone_text_destroy(report);
    return status;
}

static hone_status set_adapter(struct chat *c, const char *dir)
{
    const char *now;
    hone_status status = keep_base(c);
    if (status == HONE_OK)
        status = hone_options_get(c->options, "adapter", &now);
    char *before = status == HONE_OK ? chat_copy_text(now) : NULL;
    if (!before)
        return status == HONE_OK ? no_memory() : status;
    status = hone_options_set(c->options, "adapter", strcmp(dir, "none") ? dir : NULL);
    if (status == HONE_OK) {
        hone_model_close(c->model);
        c->model = NULL;
        status = chat_open_model(c);
        if (status == HONE_OK)
            say(c, "(%s%s)", strcmp(dir, "none") ? "adapter " : "no adapter", strcmp(dir, "none") ? dir : "");
    }
    if (status != HONE_OK) { /* as it was */
        char why[1024];
        snprintf(why, sizeof why, "%s", hone_error());
        hone_status again = hone_options_set(c->options, "adapter", *before ? before : NULL);
        if (again == HONE_OK && !c->model)
            again = chat_open_model(c);
        c->ends |= again != HONE_OK;
        status = (hone_status)fail((enum status)status, "%s", why);
    }
    memory_free(before);
    return status;
}

static hone_status set_system(struct chat *c, const char *text)
{
    char *copy = *text ? chat_copy_text(text) : NULL;
    if (*text && !copy)
        return no_memory();
    memory_free(c->system);
    c->system = copy;
    say(c, copy ? "(system message set)" : "(no system message)");
    return HONE_OK;
}

/* Whether an answer was neither stopped nor cut off. */
static bool has_whole_answer(const struct chat *c)
{
    for (size_t i = 1; i < json_array_size(c->messages); i += 2)
        if (!json_object_get(json_array_get(c->messages, i), "train"))
            return true;
    return false;
}

/* Whether a file ends within a line, as after a full disk. */
static bool ends_within_a_line(const char *path)
{
    struct file_map map;
    if (file_size(path) < 1 || file_map(&map, path) != OK)
        return false;
    bool within = map.size && map.data[map.size - 1] != '\n';
    file_unmap(&map);
    return within;
}

/* Adds a row to the file, so that conversations become a data set. What was written of one that failed is cut off again. */
static hone_status chat_save(struct chat *c, const char *path)
{
    if (!json_array_size(c->messages))
        return (hone_status)fail(ERR_ARGUMENT, "/save %s: there is no conversation yet", path);
    struct buffer line = {0};
    char *row = write_row(c);
    int64_t before = file_size(path);
    enum status done = row ? buffer_format(&line, "%s%s\n", ends_within_a_line(path) ? "\n" : "", row) : ERR_MEMORY;
    if (done == OK && (done = file_append(path, line.data, line.size)) != OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", status_message());
        if (before >= 0 && file_size(path) > before)
            (void)file_cut(path, before);
        done = fail(done, "/save: %s", why);
    }
    buffer_free(&line);
    hone_status status = (hone_status)done;
    bool written = done == OK;
    if (written)
        say(c, "(added to %s as one row, for hone train --data %s)", path, path);
    if (written && !has_whole_answer(c))
        out_error("hone: warning: every answer was cut off, and is saved with \"train\": false; a row needs one to train: raise "
                  "--max-new-tokens\n");
    json_text_free(row);
    return status;
}

static hone_status chat_reset(struct chat *c, const char *unused)
{
    (void)unused;
    json_array_clear(c->messages);
    say(c, "(a new conversation)");
    return HONE_OK;
}

static hone_status chat_leave(struct chat *c, const char *unused)
{
    (void)unused;
    c->ends = true;
    return HONE_OK;
}

static hone_status chat_help(struct chat *c, const char *unused);

static const struct command {
    const char *name, *takes, *help;
    bool needs; /* something after its name */
    hone_status (*run)(struct chat *c, const char *rest);
} commands[] = {
    {"/adapter", "DIR|none", "answer with this adapter, or with none; the conversation stays", true, set_adapter},
    {"/system", "TEXT", "set the system message; without a text there is none", false, set_system},
    {"/save", "FILE", "add the conversation to a file as one row of data for hone train", true, chat_save},
    {"/reset", "", "forget the conversation; the system message stays", false, chat_reset},
    {"/help", "",
     "list these commands; a message that begins with / is typed with two: //, one of several lines begins and ends with "
     "\"\"\"",
     false, chat_help},
    {"/exit", "", "end, as Ctrl-D does; Ctrl-C stops an answer", false, chat_leave},
    {"/quit", "", NULL, false, chat_leave}, /* what other programs call it */
    {"/bye", "", NULL, false, chat_leave},
};
enum { COMMANDS_HERE = sizeof commands / sizeof commands[0] };

static hone_status chat_help(struct chat *c, const char *unused)
{
    (void)c, (void)unused;
    for (int i = 0; i < COMMANDS_HERE && commands[i].help; i++)
        progress_say("  %-8s %-9s %s", commands[i].name, commands[i].takes, commands[i].help);
    return HONE_OK;
}

static hone_status chat_run_command(struct chat *c, char *line)
{
    char *rest = line + strcspn(line, " \t");
    size_t length = (size_t)(rest - line);
    rest += strspn(rest, " \t");
    for (int i = 0; i < COMMANDS_HERE; i++) {
        if (strlen(commands[i].name) != length || strncmp(commands[i].name, line, length) != 0)
            continue;
        if (commands[i].needs && !*rest)
            return (hone_status)fail(ERR_ARGUMENT, "%s %s: say which", commands[i].name, commands[i].takes);
        return commands[i].run(c, rest);
    }
    return (hone_status)fail(ERR_ARGUMENT,
                             "there is no command '%.*s': /help lists them; a message that begins with / is typed with two: //",
                             (int)(length < 60 ? length : 60), line);
}

/* --- lines ---------------------------------------------------------------------------------------------------------------- */

#define QUOTES "\"\"\""

enum { MESSAGE_BYTES_MAX = 16 << 20 }; /* more than any model's window */

struct lines {
    struct buffer line, message; /* message: of several lines */
    bool ended;                  /* there is no further line */
};

static hone_status chat_too_long(void)
{
    return (hone_status)fail(ERR_ARGUMENT, "a message of more than %d MB, which no model could read: it was passed over",
                             MESSAGE_BYTES_MAX >> 20);
}

/* Reads to the end of a line, keeps it without white space at its end, and refuses what cannot be a message. */
static hone_status chat_read_line(struct lines *l)
{
    struct buffer *line = &l->line;
    bool zero = false, fits = true;
    int c;
    line->size = 0;
    if (buffer_append(line, "", 0) != OK)
        return no_memory();
    while ((c = getc(stdin)) != EOF && c != '\n') {
        char letter = (char)c;
        zero |= !c;
        fits &= line->size < MESSAGE_BYTES_MAX;
        if (fits && buffer_append(line, &letter, 1) != OK)
            return no_memory();
    }
    l->ended = c == EOF && !line->size;
    while (line->size && isspace((unsigned char)line->data[line->size - 1]))
        line->data[--line->size] = 0;
    if (zero)
        return (hone_status)fail(ERR_ARGUMENT, "a line with a zero byte: a message is text in UTF-8");
    return fits ? HONE_OK : chat_too_long();
}

/* A message from three quotes to three quotes, or to the end of what is typed. */
static hone_status take_lines(struct chat *c, struct lines *l, const char *first)
{
    struct buffer *m = &l->message;
    bool fits = true;
    m->size = 0;
    for (const char *line = first; line;) {
        const char *end = strstr(line, QUOTES);
        int64_t length = end ? end - line : (int64_t)strlen(line);
        fits &= m->size + length < MESSAGE_BYTES_MAX;
        if (fits && ((line != first && buffer_append(m, "\n", 1) != OK) || buffer_append(m, line, length) != OK))
            return no_memory();
        hone_status status = end ? HONE_OK : chat_read_line(l);
        if (status != HONE_OK)
            return status;
        line = end || l->ended ? NULL : l->line.data;
    }
    while (m->size && m->data[m->size - 1] == '\n')
        m->data[--m->size] = 0;
    return fits ? answer_message(c, m->data + strspn(m->data, "\n")) : chat_too_long();
}

static hone_status take_line(struct chat *c, struct lines *l)
{
    char *line = l->line.data + strspn(l->line.data, " \t");
    if (!*line)
        return HONE_OK;
    if (strncmp(line, QUOTES, strlen(QUOTES)) == 0)
        return take_lines(c, l, line + strlen(QUOTES));
    if (line[0] == '/' && line[1] != '/')
        return chat_run_command(c, line);
    return answer_message(c, line + (line[0] == '/'));
}

static hone_status talk(struct chat *c)
{
    struct lines lines = {0};
    hone_status status = HONE_OK;
    say(c, "Type a message. /help lists commands; Ctrl-D ends.");
    while (!c->ends && status == HONE_OK) {
        if (c->typed) {
            signals_interrupts("\n(/exit or Ctrl-D ends)\n" PROMPT);
            out_error("%s", PROMPT);
        }
        status = chat_read_line(&lines);
        if (lines.ended)
            break;
        if (status == HONE_OK)
            status = take_line(c, &lines);
        if (status != HONE_OK && c->typed && !c->ends) {
            out_error("hone: %s\n", hone_error());
            status = HONE_OK;
        }
        if (ferror(stdout))
            status = (hone_status)fail(ERR_IO, "the answer cannot be written to standard output");
    }
    if (c->typed && feof(stdin))
        out_error("\n");
    buffer_free(&lines.line);
    buffer_free(&lines.message);
    return status;
}

hone_status cli_chat(hone_options *options)
{
    struct chat c = {
        .options = options, .typed = cli_input_terminal(), .messages = json_array(), .json = cli_flag(options, "json")};
    const char *system;
    hone_status status = c.messages ? signals_watch() : no_memory();
    if (status == HONE_OK)
        status = hone_options_get(options, "system", &system);
    if (status == HONE_OK && *system && !(c.system = chat_copy_text(system)))
        status = no_memory();
    if (status == HONE_OK)
        status = chat_open_model(&c);
    cli_only_warnings(); /* opening the model again, for another adapter or a longer conversation, is no news */
    if (status == HONE_OK && !c.typed)
        signals_stop("stopping after this token; a second Ctrl-C or SIGTERM ends at once", "ended at once");
    if (status == HONE_OK)
        status = talk(&c);
    hone_model_close(c.model);
    json_decref(c.messages);
    memory_free(c.system);
    return status;
}
