/* See wire.h. */
#include "dist/wire.h"

#include <string.h>

#include "base/number.h"

static const struct limits {
    int64_t min, max; /* of a kind's payload */
} limits[WIRE_KINDS] = {
    [WIRE_BEAT] = {WIRE_NOTE_SHORT, WIRE_NOTE_SHORT},
    [WIRE_FAREWELL] = {WIRE_NOTE_SHORT, WIRE_NOTE_SHORT},
    [WIRE_FAILED] = {WIRE_NOTE_SHORT, sizeof(struct wire_note) - 1},
    [WIRE_PART] = {0, INT64_MAX},
    [WIRE_ALL] = {0, INT64_MAX},
};

/* --- notes ------------------------------------------------------------------------------------------------------------------ */

int64_t wire_note_length(enum wire_kind kind, const struct wire_note *note)
{
    return WIRE_NOTE_SHORT + (kind == WIRE_FAILED ? (int64_t)strnlen(note->message, sizeof note->message - 1) : 0);
}

void wire_note_check(struct wire_note *note, int size)
{
    note->rank = note->rank >= 0 && note->rank < size ? note->rank : -1;
    note->status = note->status > OK && note->status <= ERR_RANK ? note->status : ERR_RANK;
    note->still = note->still > 0 ? note->still : 0;
    note->waits = note->waits != 0;
}

/* --- MACs ------------------------------------------------------------------------------------------------------------------- */

static void seal_head(const struct wire_way *way, const struct wire_head *head, uint8_t mac[HANDSHAKE_HASH])
{
    handshake_hmac(mac, way->key, HANDSHAKE_HASH,
                   (const struct handshake_piece[]){
                       {&way->number, (int64_t)sizeof way->number}, {head, offsetof(struct wire_head, mac)}, {NULL, 0}});
}

/* Longer than what a head's MAC is over: neither can be taken for the other. */
static void seal_payload(const struct wire_way *way, const struct wire_head *head, const void *payload,
                         uint8_t mac[HANDSHAKE_HASH])
{
    handshake_hmac(mac, way->key, HANDSHAKE_HASH,
                   (const struct handshake_piece[]){{head->mac, HANDSHAKE_HASH}, {payload, head->length}, {NULL, 0}});
}

void wire_seal(struct wire *wire, struct wire_seal *seal, enum wire_kind kind, const void *payload, int64_t length)
{
    seal->head = (struct wire_head){.kind = (int32_t)kind, .length = length};
    seal_head(&wire->out, &seal->head, seal->head.mac);
    if (length)
        seal_payload(&wire->out, &seal->head, payload, seal->mac);
    wire->out.number++;
}

/* --- reading ---------------------------------------------------------------------------------------------------------------- */

static const int64_t HEAD = (int64_t)sizeof(struct wire_head);

int64_t wire_wants(struct wire_reader *r, void **to)
{
    int64_t payload = r->got - HEAD;
    if (payload < 0) {
        *to = (char *)&r->head + r->got;
        return -payload;
    }
    int64_t mac = payload - r->head.length; /* which has been judged */
    *to = mac < 0 ? (char *)r->payload + payload : (char *)r->mac + mac;
    return mac < 0 ? -mac : HANDSHAKE_HASH - mac;
}

static enum wire_state judge_head(const struct wire_way *way, const struct wire_reader *r)
{
    uint8_t mac[HANDSHAKE_HASH];
    const struct wire_head *h = &r->head;
    seal_head(way, h, mac);
    if (!handshake_same(mac, h->mac))
        return WIRE_FORGED;
    if (h->zero || h->kind < (int32_t)r->first || h->kind > (int32_t)r->last)
        return WIRE_STRANGE;
    if (h->length < max(limits[h->kind].min, r->length_min) || h->length > min(limits[h->kind].max, r->room))
        return WIRE_LENGTH;
    return h->length ? WIRE_MORE : WIRE_DONE;
}

static enum wire_state judge_payload(const struct wire_way *way, const struct wire_reader *r)
{
    uint8_t mac[HANDSHAKE_HASH];
    seal_payload(way, &r->head, r->payload, mac);
    return handshake_same(mac, r->mac) ? WIRE_DONE : WIRE_FORGED;
}

static enum wire_state wire_judge(const struct wire_way *way, const struct wire_reader *r)
{
    if (r->got == HEAD)
        return judge_head(way, r);
    return r->got == HEAD + r->head.length + HANDSHAKE_HASH ? judge_payload(way, r) : WIRE_MORE;
}

enum wire_state wire_took(struct wire *wire, struct wire_reader *r, int64_t count)
{
    r->got += count;
    enum wire_state state = r->got < HEAD ? WIRE_MORE : wire_judge(&wire->in, r);
    if (state == WIRE_DONE) {
        wire->in.number++;
        if (r->head.length < r->room)
            ((char *)r->payload)[r->head.length] = 0;
    }
    return state;
}
