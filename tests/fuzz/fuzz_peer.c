/* The input is what a rank sends once the handshake has let it in, or somebody on its way: a byte that says what follows, a byte
 * that says how the network cuts it into pieces, and
 *
 * 'n', 's': messages to a reader of notes, and to one of so many shared bytes. Each is a kind, a byte that says whether the next
 * eight are a length that lies, two bytes of length, and the payload. They get right MACs: the rank itself is what cannot be
 * trusted.
 *
 * 'r': the bytes of a connection as they are, to a reader of notes.
 *
 * 'g': what two other ranks share: badges, verdicts, names of machines, a place to call. A zero byte and one after it stand for
 * 1 to 256 zero bytes, as most of it is. The second byte says in place of the pieces whether this rank has failed, and whether
 * the bytes are how others differ from this rank.
 *
 * No byte is written or read beyond the reader's room, texts end within it, and a message that is taken has a right MAC. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "dist/badge.h"
#include "dist/dist.h"
#include "dist/wire.h"
#include "fuzz.h"

enum { RANKS = 3, SHARED = 24, MESSAGES = 64 };

static struct fuzz_part rest;

UNFOLLOWED static uint8_t next_byte(void)
{
    uint8_t byte = rest.size ? *rest.data : 0;
    rest.data += rest.size > 0;
    rest.size -= rest.size > 0;
    return byte;
}

UNFOLLOWED static void next_bytes(void *to, size_t count)
{
    size_t some = rest.size < count ? rest.size : count;
    memset(to, 0xff, count); /* no zero byte to end a text */
    if (some)
        memcpy(to, rest.data, some);
    rest.data += some;
    rest.size -= some;
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

struct stream {
    uint8_t *bytes;
    size_t size;
};

static void append(struct stream *s, const void *bytes, size_t count)
{
    s->bytes = realloc(s->bytes, s->size + count + 1);
    PROMISE(s->bytes != NULL);
    memcpy(s->bytes + s->size, bytes, count);
    s->size += count;
}

/* As wire.h has it, with a length that need not be that of the payload. */
static void seal(struct stream *s, const struct wire_way *way, struct wire_head *head, const uint8_t *payload, size_t size)
{
    uint8_t mac[HANDSHAKE_HASH];
    handshake_hmac(head->mac, way->key, HANDSHAKE_HASH,
                   (const struct handshake_piece[]){{&way->number, 8}, {head, offsetof(struct wire_head, mac)}, {NULL, 0}});
    handshake_hmac(mac, way->key, HANDSHAKE_HASH,
                   (const struct handshake_piece[]){{head->mac, HANDSHAKE_HASH}, {payload, (int64_t)size}, {NULL, 0}});
    append(s, head, sizeof *head);
    append(s, payload, size);
    if (size)
        append(s, mac, sizeof mac);
}

/* Returns how many there are. */
static int write_messages(struct stream *s, struct wire_way way)
{
    int count = 0;
    for (; rest.size && count < MESSAGES; count++, way.number++) {
        struct wire_head head = {.kind = (int8_t)next_byte()};
        uint8_t lies = next_byte();
        size_t size = next_byte();
        size |= (size_t)next_byte() << 8;
        size = size < rest.size ? size : rest.size;
        head.length = (int64_t)size;
        if (lies & 1)
            next_bytes(&head.length, sizeof head.length);
        if (lies & 2)
            head.zero = 1;
        uint8_t *payload = malloc(size + 1);
        PROMISE(payload != NULL);
        next_bytes(payload, size);
        seal(s, &way, &head, payload, size);
        free(payload);
    }
    return count;
}

static void check_note(struct wire_reader *r, struct wire_note *note)
{
    PROMISE(r->head.kind >= WIRE_BEAT && r->head.kind <= WIRE_FAILED);
    PROMISE(r->head.length >= WIRE_NOTE_SHORT && r->head.length < (int64_t)sizeof *note);
    PROMISE(strnlen(note->message, sizeof note->message) < sizeof note->message);
    PROMISE(r->head.kind == WIRE_FAILED || r->head.length == WIRE_NOTE_SHORT);
    wire_note_check(note, RANKS);
    PROMISE(note->rank >= -1 && note->rank < RANKS && note->status > OK && note->status <= ERR_RANK && note->still >= 0);
    PROMISE(wire_note_length(WIRE_FAILED, note) < (int64_t)sizeof *note);
}

/* Gives a reader what the network brings; returns how many messages it has taken. */
static int read_stream(const struct stream *s, int64_t step, struct wire_reader r)
{
    struct wire wire = {0};
    int taken = 0;
    for (int64_t at = 0; at < (int64_t)s->size;) {
        void *to;
        int64_t wants = wire_wants(&r, &to), some = min(min(wants, step), (int64_t)s->size - at);
        PROMISE(wants > 0);
        memcpy(to, s->bytes + at, (size_t)some);
        at += some;
        enum wire_state state = wire_took(&wire, &r, some);
        if (state == WIRE_MORE)
            continue;
        if (state != WIRE_DONE)
            break;
        taken++;
        if (r.first == WIRE_BEAT)
            check_note(&r, r.payload);
        else
            PROMISE(r.head.length == SHARED && r.head.kind == WIRE_PART);
        r.got = 0;
    }
    PROMISE((uint64_t)taken == wire.in.number);
    return taken;
}

static void read_messages(char what, int64_t step)
{
    struct stream stream = {0};
    bool notes = what != 's';
    int64_t room = notes ? (int64_t)sizeof(struct wire_note) : SHARED;
    struct wire_reader r = {.first = notes ? WIRE_BEAT : WIRE_PART, .last = notes ? WIRE_FAILED : WIRE_PART, .room = room};
    r.length_min = notes ? 0 : room;
    r.payload = malloc((size_t)room); /* so that a byte beyond it is seen */
    PROMISE(r.payload != NULL);
    memset(r.payload, 0xff, (size_t)room);
    int sent = MESSAGES;
    if (what == 'r')
        append(&stream, rest.data, rest.size);
    else
        sent = write_messages(&stream, (struct wire_way){0});
    int taken = read_stream(&stream, step, r);
    PROMISE(taken <= sent);
    if (taken && taken == sent)
        fuzz_accept();
    free(r.payload);
    free(stream.bytes);
}

/* --- what is shared --------------------------------------------------------------------------------------------------------- */

enum { FAILED = 1, DIFFERS = 2 };

static uint8_t how;

/* The next byte of what another rank shares, and at the end what ends no text, or no difference. */
UNFOLLOWED static uint8_t next_shared(int *zeros)
{
    if (*zeros) {
        --*zeros;
        return 0;
    }
    if (!rest.size)
        return how & DIFFERS ? 0 : 0xff;
    uint8_t byte = next_byte();
    *zeros = byte ? 0 : next_byte();
    return byte;
}

UNFOLLOWED static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    int zeros = 0;
    for (int rank = 0; rank < group->size; rank++) {
        uint8_t *to = (uint8_t *)all + rank * bytes;
        memcpy(to, mine, (size_t)bytes);
        for (int64_t i = 0; i < bytes && rank != group->rank; i++)
            to[i] = next_shared(&zeros) ^ (how & DIFFERS ? to[i] : 0);
    }
    return OK;
}

static void meet_others(void)
{
    static const struct group_class class = {.name = "fuzz", .share = share};
    struct group group = {.class = &class, .rank = 1, .size = RANKS};
    struct badge *all = malloc(RANKS * sizeof *all);
    struct place place = {0}, facing = {0};
    char name[BADGE_TEXT];
    int threads, neighbours;
    PROMISE(all != NULL);
    PROMISE(badge_share(&group, all) == OK);
    for (int rank = 0; rank < RANKS; rank++) {
        badge_name(&all[rank], rank, name);
        PROMISE(strlen(name) < sizeof name);
        place_face(&facing, all[rank].address);
    }
    free(all);
    bool good = group_tell(&group, &place, (int64_t)sizeof place) == OK && place_check(&place) == OK;
    PROMISE(!good || (place.port > 0 && place.port < 65536 && *place.secret && strlen(place.secret) < sizeof place.secret));
    enum status status = group_agree(&group, how & FAILED ? fail(ERR_IO, "this rank has failed") : OK);
    PROMISE(status >= OK && status <= ERR_RANK && (status != OK || !(how & FAILED)));
    PROMISE(dist_seat(&group, &threads, &neighbours) == OK && neighbours >= 1 && neighbours <= RANKS);
    if (good && status == OK)
        fuzz_accept();
}

void fuzz_input(const uint8_t *data, size_t size)
{
    rest = (struct fuzz_part){data, size};
    char what = (char)next_byte();
    how = next_byte();
    if (what == 'g')
        meet_others();
    else
        read_messages(what, how % 64 + 1);
}
