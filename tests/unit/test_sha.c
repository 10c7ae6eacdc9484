/* SHA-1 and SHA-256: the examples of FIPS 180-4, and every length around a block. Python's hashlib made the numbers. */
#include "test.h"

#include "base/sha.h"
#include "base/sha_256.h"

static const char *hash(enum sha_kind kind, const void *bytes, int64_t count)
{
    static char text[SHA_TEXT];
    struct sha sha;
    sha_init(&sha, kind);
    sha_add(&sha, bytes, count);
    sha_end(&sha, text);
    return text;
}

/* Fails if a constant, a rotation or the padding is another one. */
static void known_texts_have_their_hashes(void **state)
{
    (void)state;
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_string_equal(hash(SHA_1, "", 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    assert_string_equal(hash(SHA_1, "abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_string_equal(hash(SHA_1, two, 56), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    assert_string_equal(hash(SHA_256, "", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(hash(SHA_256, "abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(hash(SHA_256, two, 56), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* Fails if a length is padded otherwise: the hash of the hashes of 0, 1, 2, ... 199 bytes. */
static void every_length_is_padded(void **state)
{
    (void)state;
    uint8_t bytes[200];
    char text[SHA_TEXT];
    struct sha all[2];
    for (int i = 0; i < 200; i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    for (int kind = 0; kind < 2; kind++) {
        sha_init(&all[kind], (enum sha_kind)kind);
        for (int n = 0; n < 200; n++)
            sha_add(&all[kind], hash((enum sha_kind)kind, bytes, n), kind == SHA_1 ? 40 : 64);
    }
    sha_end(&all[SHA_1], text);
    assert_string_equal(text, "1ba4d14993a35059769e5afa8ef66731078efe95");
    sha_end(&all[SHA_256], text);
    assert_string_equal(text, "e5af9aca6b5ef5468c7a3ba960ef378f82fcf9b5d924a6063b71693ddc0bbcb9");
}

/* Fails if what is left of a block is lost between two pieces. */
static void the_same_bytes_in_other_pieces_have_the_same_hash(void **state)
{
    (void)state;
    uint8_t bytes[1000];
    char whole[SHA_TEXT], text[SHA_TEXT];
    for (int i = 0; i < 1000; i++)
        bytes[i] = (uint8_t)(i * i);
    for (int kind = 0; kind < 2; kind++) {
        strcpy(whole, hash((enum sha_kind)kind, bytes, sizeof bytes));
        for (int piece = 1; piece < 140; piece++) {
            struct sha sha;
            sha_init(&sha, (enum sha_kind)kind);
            for (int at = 0; at < 1000; at += piece)
                sha_add(&sha, bytes + at, at + piece < 1000 ? piece : 1000 - at);
            sha_end(&sha, text);
            assert_string_equal(text, whole);
        }
    }
}

/* Fails if a shuffle, a round or the number of blocks is another one: the two ways from the same states over 0 to 5 blocks. Under
 * valgrind and on old processors only the first of them runs. */
static void the_processors_instructions_give_the_same_state(void **state)
{
    (void)state;
    uint8_t bytes[5 * 64 + 1];
    if (!sha_256_has_instructions()) {
        print_message("SHA's instructions are left out: this processor has none\n");
        return;
    }
    for (uint32_t seed = 1; seed < 200; seed++) {
        uint32_t number = seed, a[8], b[8];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((number = number * 1664525 + 1013904223) >> 24);
        for (int i = 0; i < 8; i++)
            a[i] = b[i] = number = number * 1664525 + 1013904223;
        sha_256_by_arithmetic(a, bytes + seed % 2, seed % 6);
        sha_256_by_instructions(b, bytes + seed % 2, seed % 6);
        assert_memory_equal(a, b, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_their_hashes),
        cmocka_unit_test(every_length_is_padded),
        cmocka_unit_test(the_same_bytes_in_other_pieces_have_the_same_hash),
        cmocka_unit_test(the_processors_instructions_give_the_same_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
