/* Conversations as a model's own chat template writes them: rows to text, to ids, and to the mask of trained tokens.
 *
 * What is trained. In every assistant message that is a target, the text from the end of the prompt (what the template writes
 * when asked for an answer: the header of the turn) to the token that ends the turn, inclusive: its content, reasoning and tool
 * calls as the template writes them, and what the template writes between and after them, which the model must generate too. A
 * template with {% generation %} blocks decides itself: exactly what they hold is trained. The mask comes from the renderer,
 * which knows the message and the turn of every byte. A message with "train": false or "weight": 0 is not a target.
 *
 * What is typed stays text. Bytes of a user's, system's or tool's message and of tool definitions never become special tokens.
 * In an assistant's message special tokens are recognised, as in transformers: the answer is the target.
 *
 * An open chat is never written to: any number of threads may encode with it, each into its own struct chat_row.
 */
#ifndef TEXT_CHAT_CHAT_H
#define TEXT_CHAT_CHAT_H

#include "base/hash.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer/tokenizer.h"

struct chat;

/* Opens the tokenizer and the chat templates of a model's directory: tokenizer.json, tokenizer_config.json, and
 * chat_template.jinja, which with its additional_chat_templates wins over those in tokenizer_config.json. A GGUF file in its
 * place has all of it in its head. Without a template everything works but rendering rows. */
enum status chat_open(struct chat **out, const char *model_dir);
bool chat_is_there(const char *model_dir); /* whether there is a tokenizer to open */
void chat_close(struct chat *chat);        /* NULL is fine */

/* Adds to the hash what decides how a row becomes tokens and mask, except hone's own sources: the files that chat_open reads, by
 * name and content, the libraries that tokenizers use, and the day of the moment if a file asks for it. Far cheaper than opening.
 * *files is the digest of only the files. */
enum status chat_fingerprint(const char *model_dir, int64_t moment, struct hash *hash, struct digest *files);

/* The moment that templates which ask for it are given; 0, as at first: that of the call. Before anything is encoded. */
void chat_set_moment(struct chat *chat, int64_t moment);

/* Strings of prompts and answers are then one text, without the template. Before anything is encoded. */
void chat_set_raw(struct chat *chat, bool raw);
/* Whether such strings are what a user and the assistant say: the model has a template, and nobody asked to leave it out. */
bool chat_takes_strings(const struct chat *chat);

/* The digest of the files that this chat was opened from, as they were then. */
struct digest chat_files(const struct chat *chat);

const struct tokenizer *chat_tokenizer(const struct chat *chat);

/* Whether the model has a template to render rows with; the second fails if it has none. */
bool chat_has_template(const struct chat *chat);
enum status chat_need_template(const struct chat *chat);

/* The ids that end the assistant's turn in generation. They belong to the chat. */
const int32_t *chat_eos(const struct chat *chat, int64_t *count);

/* One row: ids, the bytes of the text they cover (not of plain text without a prompt), and mask[i] = 1 where token i is trained.
 * Starts as {0}; when reused it keeps its memory. */
struct chat_row {
    struct tokens tokens;
    uint8_t *mask;
    int64_t mask_capacity;
    int64_t trained;          /* number of trained tokens */
    struct jinja_output text; /* what was rendered, and where its bytes came from */
    struct text_range *plain; /* the bytes that were typed */
    int64_t plain_capacity;
    struct chat_message *message;       /* the role of each message */
    int64_t messages, message_capacity; /* messages: 0 of plain text */
};

void chat_row_free(struct chat_row *row);

/* Of a long row: frees what only finding the mask needs, places and text. */
enum { CHAT_ROW_LONG = 1 << 18 }; /* tokens, above which memory is not kept for the next row */
void chat_row_keep_ids(struct chat_row *row);

/* The text of a row {"messages": [{"role", "content", "train", ...}, ...], "tools": [...]}; "train" may be missing. A row that
 * cannot be used is ERR_DATA with the cause; the caller adds file and line before it. */
enum status chat_render(const struct chat *chat, const json_t *row, bool generation_prompt, struct jinja_output *out);

/* Messages in the forms that the row's template takes, changed in place: arguments of tool calls as objects or as text, a content
 * where there is only a call, texts of parts as one, developers as the system. */
enum status chat_fit(const struct chat *chat, json_t *messages, const json_t *tools);

/* The row for training; what `out` held before is replaced. */
enum status chat_encode(const struct chat *chat, const json_t *row, struct chat_row *out);

/* The same for the JSON text of a row, without a tree of it. It takes rows that have only "messages", whose contents are texts of
 * the system, users, tools and at least one assistant. False: it cannot take this row, and json_parse and chat_encode must. */
bool chat_encode_line(const struct chat *chat, const char *text, int64_t length, struct chat_row *out);

/* The row for generation: it ends with the prompt of the assistant's turn, and nothing is trained. */
enum status chat_encode_prompt(const struct chat *chat, const json_t *row, struct chat_row *out);

/* Plain text for training: no chat template, and everything after a prompt, its first bytes, is trained. Replaces `out` by the
 * ids of the text. Tokens with bytes after the prompt are trained; with an empty prompt, all are.
 *
 * The ids are those that Hugging Face's tokenizers give for the whole text, so text that spells a special token is that token.
 * The end-of-text token is appended unless the text ends with it, as TRL does. */
enum status plain_encode(const struct chat *chat, struct buffer *text, int64_t prompt, struct chat_row *out);

#endif
