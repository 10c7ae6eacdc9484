/* Messages between ranks after the handshake: what somebody on the way can do to them, and what a rank that lies. */
#include "dist/wire.h"

#include "dist/badge.h"
#include "dist/guesses.h"
#include "test.h"

enum { MESSAGE_MAX = 256 };

/* Two ends of a connection: what one sends the other takes. */
struct ends {
    struct wire from, to;
};

static struct ends open_ends(void)
{
    struct ends e = {0};
    memset(e.from.out.key, 1, HANDSHAKE_HASH);
    memset(e.from.in.key, 2, HANDSHAKE_HASH);
    e.to.in = e.from.out;
    e.to.out = e.from.in;
    return e;
}

static int64_t write_message(struct wire *wire, enum wire_kind kind, const char *payload, char bytes[MESSAGE_MAX])
{
    struct wire_seal seal;
    int64_t length = (int64_t)strlen(payload), at = (int64_t)sizeof seal.head;
    wire_seal(wire, &seal, kind, payload, length);
    memcpy(bytes, &seal.head, sizeof seal.head);
    memcpy(bytes + at, payload, (size_t)length);
    memcpy(bytes + at + length, seal.mac, sizeof seal.mac);
    return length ? at + length + (int64_t)sizeof seal.mac : at;
}

static enum wire_state take_message(struct wire *wire, struct wire_reader *reader, const char *bytes, int64_t count, int64_t step)
{
    enum wire_state state = WIRE_MORE;
    reader->got = 0;
    for (int64_t at = 0; at < count && state == WIRE_MORE;) {
        void *to;
        int64_t some = wire_wants(reader, &to);
        some = some < step ? some : step;
        some = some < count - at ? some : count - at;
        memcpy(to, bytes + at, (size_t)some);
        at += some;
        state = wire_took(wire, reader, some);
    }
    return state;
}

static struct wire_reader reader_of(char *payload, int64_t room)
{
    return (struct wire_reader){.first = WIRE_PART, .last = WIRE_ALL, .payload = payload, .room = room};
}

static void messages_come_as_they_were_sent_in_pieces_of_any_size(void **state)
{
    (void)state;
    char bytes[MESSAGE_MAX], payload[16];
    for (int64_t step = 1; step < 100; step++) {
        struct ends e = open_ends();
        struct wire_reader r = reader_of(payload, sizeof payload);
        for (int turn = 0; turn < 3; turn++) {
            const char *said = turn == 1 ? "" : "some words";
            memset(payload, 'x', sizeof payload);
            int64_t count = write_message(&e.from, turn ? WIRE_ALL : WIRE_PART, said, bytes);
            assert_int_equal(take_message(&e.to, &r, bytes, count, step), WIRE_DONE);
            assert_int_equal(r.head.kind, turn ? WIRE_ALL : WIRE_PART);
            assert_string_equal(payload, said); /* which the reader has ended */
        }
    }
}

/* Seen to fail with a MAC that leaves out the number, the kind or the length. */
static void every_byte_that_is_changed_is_noticed(void **state)
{
    (void)state;
    char bytes[MESSAGE_MAX], payload[16];
    struct ends e = open_ends();
    int64_t count = write_message(&e.from, WIRE_PART, "some words", bytes);
    for (int64_t i = 0; i < count; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct wire to = e.to;
            struct wire_reader r = reader_of(payload, sizeof payload);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
            assert_int_equal(take_message(&to, &r, bytes, count, count), WIRE_FORGED);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
        }
    struct wire_reader r = reader_of(payload, sizeof payload);
    assert_int_equal(take_message(&e.to, &r, bytes, count, count), WIRE_DONE);
}

/* Seen to fail without the number of a message, and with one key for both directions. */
static void what_is_repeated_left_out_swapped_or_sent_back_is_noticed(void **state)
{
    (void)state;
    char one[MESSAGE_MAX], two[MESSAGE_MAX], payload[16];
    struct ends e = open_ends();
    int64_t count = write_message(&e.from, WIRE_PART, "one", one);
    assert_int_equal(write_message(&e.from, WIRE_PART, "two", two), count);
    struct wire left_out = e.to, back = e.from;
    struct wire_reader r = reader_of(payload, sizeof payload);
    assert_int_equal(take_message(&left_out, &r, two, count, count), WIRE_FORGED);
    assert_int_equal(take_message(&back, &r, one, count, count), WIRE_FORGED);
    assert_int_equal(take_message(&e.to, &r, one, count, count), WIRE_DONE);
    struct wire repeated = e.to;
    assert_int_equal(take_message(&repeated, &r, one, count, count), WIRE_FORGED);
    assert_int_equal(take_message(&e.to, &r, two, count, count), WIRE_DONE);
}

/* A right MAC and a wrong message: the rank at the other end is another version's, or lies. */
static void kinds_and_lengths_that_are_not_expected_are_refused(void **state)
{
    (void)state;
    char bytes[MESSAGE_MAX], payload[16];
    struct ends e = open_ends();
    struct wire_reader r = reader_of(payload, 4);
    int64_t count = write_message(&e.from, WIRE_PART, "12345", bytes);
    assert_int_equal(take_message(&e.to, &r, bytes, count, count), WIRE_LENGTH);
    assert_int_equal(r.head.length, 5);
    e = open_ends();
    r.length_min = 4;
    count = write_message(&e.from, WIRE_PART, "123", bytes);
    assert_int_equal(take_message(&e.to, &r, bytes, count, count), WIRE_LENGTH);
    e = open_ends();
    count = write_message(&e.from, WIRE_BEAT, "1234", bytes);
    assert_int_equal(take_message(&e.to, &r, bytes, count, count), WIRE_STRANGE);
    e = open_ends();
    struct wire_note note;
    r = (struct wire_reader){.first = WIRE_BEAT, .last = WIRE_FAILED, .payload = &note, .room = sizeof note};
    count = write_message(&e.from, WIRE_BEAT, "a beat that is longer than one", bytes);
    assert_int_equal(take_message(&e.to, &r, bytes, count, count), WIRE_LENGTH);
}

static void what_a_note_says_is_brought_into_bounds(void **state)
{
    (void)state;
    struct wire_note note = {.rank = 7, .status = 99, .still = -3, .waits = 12};
    wire_note_check(&note, 4);
    assert_int_equal(note.rank, -1);
    assert_int_equal(note.status, ERR_RANK);
    assert_int_equal(note.still, 0);
    assert_int_equal(note.waits, 1);
    memset(note.message, 'x', sizeof note.message); /* without a zero byte */
    assert_int_equal(wire_note_length(WIRE_FAILED, &note), sizeof note - 1);
    assert_int_equal(wire_note_length(WIRE_BEAT, &note), WIRE_NOTE_SHORT);
}

/* --- what is shared --------------------------------------------------------------------------------------------------------- */

/* Other ranks send no zero byte at all. */
static enum status share_ones(struct group *group, const void *mine, void *all, int64_t bytes)
{
    memset(all, 'x', (size_t)(bytes * group->size));
    memcpy((char *)all + bytes * group->rank, mine, (size_t)bytes);
    return OK;
}

/* Seen to fail under the address sanitizer with a badge whose texts are taken as they come. */
static void texts_of_other_ranks_end_whatever_they_sent(void **state)
{
    (void)state;
    static const struct group_class class = {.name = "test", .share = share_ones};
    struct group group = {.class = &class, .rank = 1, .size = 2};
    struct badge *all = test_malloc(2 * sizeof *all);
    char name[BADGE_TEXT];
    assert_ok(badge_share(&group, all));
    assert_int_equal(strlen(all[0].host), PROCESS_HOST - 1);
    assert_int_equal(strlen(all[0].address[PLACE_ADDRESSES - 1]), PLACE_NUMERIC - 1);
    badge_name(&all[0], 0, name);
    assert_true(strlen(name) > PROCESS_HOST && strlen(name) < sizeof name);
    test_free(all);
    assert_int_equal(group_agree(&group, OK), ERR_RANK); /* no status either */
    assert_true(strlen(status_message()) < STATUS_MESSAGE_SIZE);
    struct place place = {0};
    assert_ok(group_tell(&group, &place, (int64_t)sizeof place));
    assert_fails(place_check(&place), ERR_RANK, "has said no place");
    assert_int_equal(strlen(place.secret), PLACE_SECRET - 1);
}

/* --- guesses ---------------------------------------------------------------------------------------------------------------- */

static void each_wrong_guess_of_a_network_makes_the_next_wait_longer(void **state)
{
    (void)state;
    struct guesses g = {0};
    uint8_t bad[PLACE_NETWORK] = {1}, good[PLACE_NETWORK] = {2};
    double now = 100;
    for (int i = 1; i <= 20; i++) {
        double pause = i < 10 ? GUESSES_PAUSE * i : GUESSES_PAUSE_MAX;
        assert_true(guesses_may(&g, bad, now));
        guesses_wrong(&g, bad, now);
        assert_false(guesses_may(&g, bad, now + pause - 0.01));
        assert_true(guesses_may(&g, good, now));
        assert_true(guesses_known(&g, bad) && !guesses_known(&g, good));
        now += pause + 0.001;
    }
    assert_true(now - 100 > 15);     /* 20 guesses, which took 0.1 s before */
    for (int i = 0; i < 1000; i++) { /* many networks: room is made, and nobody is kept waiting for them */
        uint8_t other[PLACE_NETWORK] = {3, (uint8_t)i, (uint8_t)(i >> 8)};
        guesses_wrong(&g, other, now);
    }
    assert_true(guesses_may(&g, good, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_as_they_were_sent_in_pieces_of_any_size),
        cmocka_unit_test(every_byte_that_is_changed_is_noticed),
        cmocka_unit_test(what_is_repeated_left_out_swapped_or_sent_back_is_noticed),
        cmocka_unit_test(kinds_and_lengths_that_are_not_expected_are_refused),
        cmocka_unit_test(what_a_note_says_is_brought_into_bounds),
        cmocka_unit_test(texts_of_other_ranks_end_whatever_they_sent),
        cmocka_unit_test(each_wrong_guess_of_a_network_makes_the_next_wait_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
