/* See hello.h. */
#include "dist/hello.h"

#include <string.h>

#include "base/number.h"
#include "base/process.h"
#include "base/sha.h"

static const char WORD[HELLO_WORD] = "hone-3\n";

/* --- HMAC ------------------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 64 };

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void end_in_bytes(struct sha *sha, uint8_t out[HELLO_HASH])
{
    char text[SHA_TEXT];
    sha_end(sha, text);
    for (int i = 0; i < HELLO_HASH; i++)
        out[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
}

void hello_hmac(uint8_t out[HELLO_HASH], const void *secret, int64_t length, const struct hello_piece *pieces)
{
    uint8_t key[BLOCK] = {0}, pad[BLOCK];
    struct sha sha;
    if (length > BLOCK) {
        sha_init(&sha, SHA_256);
        sha_add_unseen(&sha, secret, length);
        end_in_bytes(&sha, key);
    } else {
        memcpy(key, secret, (size_t)length);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < BLOCK; i++)
            pad[i] = (uint8_t)(key[i] ^ (turn ? 0x5c : 0x36));
        sha_init(&sha, SHA_256);
        sha_add_unseen(&sha, pad, BLOCK);
        if (turn)
            sha_add_unseen(&sha, out, HELLO_HASH);
        for (const struct hello_piece *p = pieces; p->bytes && !turn; p++)
            sha_add_unseen(&sha, p->bytes, p->count);
        end_in_bytes(&sha, out);
    }
}

/* --- proofs ----------------------------------------------------------------------------------------------------------------- */

static void prove(uint8_t proof[HELLO_HASH], const char *secret, const char *side, const struct hello_offer *offer,
                  const struct hello_answer *answer)
{
    hello_hmac(proof, secret, (int64_t)strlen(secret),
               (const struct hello_piece[]){{side, (int64_t)strlen(side)},
                                            {offer, (int64_t)sizeof *offer},
                                            {answer->number, HELLO_HASH},
                                            {&answer->caller, (int64_t)sizeof answer->caller},
                                            {NULL, 0}});
}

bool hello_same(const uint8_t a[HELLO_HASH], const uint8_t b[HELLO_HASH])
{
    unsigned differs = 0;
    for (int i = 0; i < HELLO_HASH; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return !differs;
}

static enum status draw(uint8_t number[HELLO_HASH])
{
    for (int i = 0; i < HELLO_HASH; i += 8) {
        uint64_t part;
        TRY(process_unique(&part));
        memcpy(number + i, &part, sizeof part);
    }
    return OK;
}

enum status hello_open(struct hello *hello)
{
    *hello = (struct hello){0};
    memcpy(hello->offer.word, WORD, sizeof WORD);
    return draw(hello->offer.number);
}

bool hello_may_be(const struct hello *hello, int size, int what)
{
    const struct hello_caller *c = &hello->answer.caller;
    return c->rank >= 1 && c->rank < size && c->size == size && c->what == what && !c->zero;
}

bool hello_is_whole(const struct hello *hello)
{
    return hello->got == (int64_t)sizeof hello->answer;
}

int64_t hello_take(struct hello *hello, const void *bytes, int64_t count)
{
    int64_t taken = min(count, (int64_t)sizeof hello->answer - hello->got);
    memcpy((char *)&hello->answer + hello->got, bytes, (size_t)taken);
    hello->got += taken;
    return taken;
}

enum hello_state hello_judge(const struct hello *hello, const char *secret, int size, int what)
{
    uint8_t proof[HELLO_HASH];
    if (!hello_is_whole(hello))
        return HELLO_MORE;
    prove(proof, secret, "caller", &hello->offer, &hello->answer);
    if (!hello_same(proof, hello->answer.proof))
        return HELLO_WRONG;
    return hello_may_be(hello, size, what) ? HELLO_RIGHT : HELLO_OTHER;
}

void hello_welcome(struct hello_welcome *welcome, const struct hello *hello, const char *secret)
{
    prove(welcome->proof, secret, "listener", &hello->offer, &hello->answer);
}

static const char REFUSAL[][HELLO_HASH] = {[HELLO_WRONG] = "refused: another secret\n", [HELLO_OTHER] = "refused: another run\n"};

void hello_refuse(struct hello_welcome *welcome, enum hello_state why)
{
    memcpy(welcome->proof, REFUSAL[why], HELLO_HASH);
}

enum hello_state hello_refusal(const struct hello_welcome *welcome)
{
    for (enum hello_state why = HELLO_WRONG; why <= HELLO_OTHER; why++)
        if (!memcmp(welcome->proof, REFUSAL[why], HELLO_HASH))
            return why;
    return HELLO_MORE;
}

enum status hello_answer(struct hello_answer *answer, const struct hello_offer *offer, const char *secret, int rank, int size,
                         int what)
{
    *answer = (struct hello_answer){.caller = {.rank = rank, .size = size, .what = what}};
    if (memcmp(offer->word, WORD, sizeof WORD) != 0)
        return fail(ERR_RANK, "what answers is not hone");
    TRY(draw(answer->number));
    prove(answer->proof, secret, "caller", offer, answer);
    return OK;
}

bool hello_trusts(const struct hello_welcome *welcome, const struct hello_answer *answer, const struct hello_offer *offer,
                  const char *secret)
{
    uint8_t proof[HELLO_HASH];
    prove(proof, secret, "listener", offer, answer);
    return hello_same(proof, welcome->proof);
}

/* The offer begins with a word that begins otherwise than what follows "caller" here: no key is a proof. */
void hello_keys(struct hello_keys *keys, const struct hello_answer *answer, const struct hello_offer *offer, const char *secret)
{
    prove(keys->caller, secret, "caller's key", offer, answer);
    prove(keys->listener, secret, "listener's key", offer, answer);
}
