/* The mask of trained tokens.
 *
 * The renderer says which message each byte came from and in which turn it was written. A turn that is a target is trained
 * from the end of the prompt (prompt.c) to the token that ends it: the message's bytes and all that the template writes
 * between and around them, which the model must generate too. The mask goes by position: the same id may be trained in one place
 * and not in another. Where the template has {% generation %} blocks, they decide instead.
 */
#include <string.h>

#include "base/number.h"
#include "text/chat/chat_inside.h"

/* The spans of a message's turn; -1: none. `own`: those with bytes of the message itself. */
struct turn {
    int64_t first, last, own_first, own_last;
    bool target;
};

/* Bytes of a turn that belong together: [begin, end) is the assistant's, what the template writes in the turn ends at `tail`,
 * and what it writes before the next message at `beyond`. */
struct stretch {
    int64_t begin, end, tail, beyond;
    bool known; /* the renderer knows the turn */
};

/* Turns follow each other, and then a row takes a few steps for each byte, span and token. A template that writes the messages
 * more than once makes turns that reach over one another. */
enum { STEPS_PER_BYTE = 16, STEPS_MIN = 1 << 26 };

struct masker {
    const struct chat *chat;
    const struct chat_template *template;
    const struct jinja_output *text;
    struct chat_row *row;
    int64_t steps; /* that remain; less than 0: too many */
};

/* The first token that begins at or after a byte. */
static int64_t token_at(const struct tokens *tokens, int64_t byte)
{
    int64_t low = 0, high = tokens->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tokens->begin[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Every token that has a byte of the range, also one that reaches over its edge. */
static void mask_train(struct masker *m, int64_t begin, int64_t end)
{
    struct chat_row *row = m->row;
    const struct tokens *tokens = &row->tokens;
    int64_t t = token_at(tokens, begin);
    while (t > 0 && tokens->end[t - 1] > begin)
        t--;
    int64_t from = t;
    for (; t < tokens->count && tokens->begin[t] < end; t++) {
        if (tokens->end[t] <= tokens->begin[t] || tokens->end[t] <= begin)
            continue;
        row->trained += !row->mask[t];
        row->mask[t] = 1;
    }
    m->steps -= t - from;
}

static bool is_eos(const struct chat *chat, int32_t id)
{
    for (int64_t i = 0; i < chat->eos_count; i++)
        if (chat->eos[i] == id)
            return true;
    return false;
}

static bool mask_white(const char *text, int64_t begin, int64_t end)
{
    while (begin < end && memchr(" \t\r\n", text[begin], 4))
        begin++;
    return begin == end;
}

/* Where a turn ends: with the first token that ends generation; else with the last special one that the template writes in the
 * turn; else, if it writes only plain text, with that. The token may also come after the turn and white space: some templates
 * close a turn where they open the next, or use the next header as the end. */
static int64_t end_of(struct masker *m, const struct stretch *s)
{
    const struct tokens *tokens = &m->row->tokens;
    const struct tokenizer *tokenizer = m->chat->tokenizer;
    int64_t end = s->end, t = token_at(tokens, s->end), limit = s->known ? s->tail : s->beyond;
    for (; t < tokens->count && tokens->end[t] <= limit; t++) {
        m->steps--;
        if (is_eos(m->chat, tokens->id[t]))
            return tokens->end[t];
        if (s->known && tokenizer_is_special(tokenizer, tokens->id[t]) && tokens->id[t] != m->chat->bos)
            end = tokens->end[t];
    }
    if (end == s->end)
        end = s->tail;
    for (t = token_at(tokens, end); t < tokens->count && tokens->end[t] <= s->beyond; t++) {
        m->steps--;
        bool special = tokenizer_is_special(tokenizer, tokens->id[t]) && tokens->id[t] != m->chat->bos;
        if (is_eos(m->chat, tokens->id[t]) || (special && !s->known))
            return tokens->end[t];
        if (special || !mask_white(m->text->text.data, tokens->begin[t], tokens->end[t]))
            break;
    }
    return end;
}

/* The assistant's bytes, split where another message is written in between, as a tool's answer inside the turn. */
static void train_turn(struct masker *m, int64_t message, const struct turn *turn, int64_t begin)
{
    const struct jinja_output *text = m->text;
    int64_t from = turn->own_first >= 0 ? turn->own_first : turn->last, i;
    struct stretch s = {.begin = begin, .end = begin, .tail = begin, .known = text->span[turn->last].turn == message};
    bool open = true;
    for (i = from; i < text->span_count && (i <= turn->last || text->span[i].message < 0); i++) {
        m->steps--;
        const struct jinja_span *span = &text->span[i];
        bool own = span->message == message && i <= turn->last;
        if (open && span->message >= 0 && !own) {
            s.beyond = span->begin;
            mask_train(m, s.begin, end_of(m, &s));
            open = false;
        }
        if (own && !open)
            s.begin = span->begin;
        open |= own;
        if (own && span->end > s.end)
            s.end = span->end;
        if (own || (open && s.known && span->turn == message))
            s.tail = span->end;
    }
    s.beyond = i < text->span_count ? text->span[i].begin : text->text.size;
    if (open)
        mask_train(m, s.begin, end_of(m, &s));
}

/* Where the assistant's text begins: after the prompt, and not before its turn. -1: not found. */
static int64_t begin_of(struct masker *m, int64_t message, const struct turn *turn)
{
    const struct jinja_output *text = m->text;
    bool own = turn->own_first >= 0;
    int64_t i = own ? turn->own_first - 1 : turn->last, anchor = 0;
    int64_t first = own ? text->span[turn->own_first].begin : text->span[turn->last].end;
    enum speaker before = SPEAKER_OTHER;
    for (; i >= 0 && (text->span[i].message < 0 || text->span[i].message == message); i--)
        m->steps--;
    if (i >= 0) {
        anchor = text->span[i].end;
        before = m->row->message[text->span[i].message].speaker;
    }
    bool known = text->span[turn->first].turn == message;
    int64_t start = known ? max(text->span[turn->first].begin, anchor) : anchor;
    m->steps -= first - start;
    int64_t begin = prompt_end(m->template, &text->text, anchor, start, first, before);
    if (begin < 0 && (!known || !own))
        return own ? first : -1;
    return max(begin, start);
}

static void mask_find_turns(const struct masker *m, struct turn *turns, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        turns[i] = (struct turn){-1, -1, -1, -1, m->row->message[i].target};
    for (int64_t s = 0; s < m->text->span_count; s++) {
        const struct jinja_span *span = &m->text->span[s];
        int64_t i = span->turn >= 0 ? span->turn : span->message;
        if (i < 0 || i >= count)
            continue;
        if (turns[i].first < 0)
            turns[i].first = s;
        turns[i].last = s;
        if (span->message != i)
            continue;
        if (turns[i].own_first < 0)
            turns[i].own_first = s;
        turns[i].own_last = s;
    }
}

static void train_blocks(struct masker *m, const struct turn *turns, int64_t count)
{
    for (int64_t s = 0; s < m->text->span_count; s++) {
        const struct jinja_span *span = &m->text->span[s];
        int64_t i = span->turn >= 0 ? span->turn : span->message;
        if (span->generation && (i < 0 || i >= count || turns[i].target))
            mask_train(m, span->begin, span->end);
    }
}

enum status mask_make(const struct chat *chat, const struct chat_template *template, struct chat_row *row)
{
    struct masker m = {chat, template, &row->text, row, STEPS_MIN + STEPS_PER_BYTE * row->text.text.size};
    struct turn few[16], *turns = few;
    int64_t count = row->messages;
    if (count > 16 && !(turns = memory_alloc(count * (int64_t)sizeof *turns)))
        return ERR_MEMORY;
    mask_find_turns(&m, turns, count);
    if (jinja_marks_generation(template->jinja))
        train_blocks(&m, turns, count);
    for (int64_t i = 0; !jinja_marks_generation(template->jinja) && i < count && m.steps >= 0; i++) {
        int64_t begin = turns[i].target && turns[i].first >= 0 ? begin_of(&m, i, &turns[i]) : -1;
        if (begin >= 0)
            train_turn(&m, i, &turns[i], begin);
    }
    if (turns != few)
        memory_free(turns);
    return m.steps >= 0
               ? OK
               : fail(ERR_LIMIT,
                      "the mask of %lld messages takes too long: the template writes them in more than one place, or they "
                      "are empty; use fewer of them",
                      (long long)count);
}
