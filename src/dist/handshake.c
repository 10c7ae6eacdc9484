/* See handshake.h. */
#include "dist/handshake.h"

#include <string.h>

#include "base/number.h"
#include "base/process.h"
#include "base/sha.h"

static const char WORD[HANDSHAKE_WORD] = "hone-3\n";

/* --- HMAC ------------------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 64 };

static uint8_t handshake_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void end_in_bytes(struct sha *sha, uint8_t out[HANDSHAKE_HASH])
{
    char text[SHA_TEXT];
    sha_end(sha, text);
    for (int i = 0; i < HANDSHAKE_HASH; i++)
        out[i] = (uint8_t)(handshake_digit(text[2 * i]) << 4 | handshake_digit(text[2 * i + 1]));
}

void handshake_hmac(uint8_t out[HANDSHAKE_HASH], const void *secret, int64_t length, const struct handshake_piece *pieces)
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
            sha_add_unseen(&sha, out, HANDSHAKE_HASH);
        for (const struct handshake_piece *p = pieces; p->bytes && !turn; p++)
            sha_add_unseen(&sha, p->bytes, p->count);
        end_in_bytes(&sha, out);
    }
}

/* --- proofs ----------------------------------------------------------------------------------------------------------------- */

static void prove(uint8_t proof[HANDSHAKE_HASH], const char *secret, const char *side, const struct handshake_offer *offer,
                  const struct handshake_answer *answer)
{
    handshake_hmac(proof, secret, (int64_t)strlen(secret),
                   (const struct handshake_piece[]){{side, (int64_t)strlen(side)},
                                                    {offer, (int64_t)sizeof *offer},
                                                    {answer->number, HANDSHAKE_HASH},
                                                    {&answer->caller, (int64_t)sizeof answer->caller},
                                                    {NULL, 0}});
}

bool handshake_same(const uint8_t a[HANDSHAKE_HASH], const uint8_t b[HANDSHAKE_HASH])
{
    unsigned differs = 0;
    for (int i = 0; i < HANDSHAKE_HASH; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return !differs;
}

static enum status handshake_draw(uint8_t number[HANDSHAKE_HASH])
{
    for (int i = 0; i < HANDSHAKE_HASH; i += 8) {
        uint64_t part;
        TRY(process_unique(&part));
        memcpy(number + i, &part, sizeof part);
    }
    return OK;
}

enum status handshake_open(struct handshake *handshake)
{
    *handshake = (struct handshake){0};
    memcpy(handshake->offer.word, WORD, sizeof WORD);
    return handshake_draw(handshake->offer.number);
}

bool handshake_may_be(const struct handshake *handshake, int size, int what)
{
    const struct handshake_caller *c = &handshake->answer.caller;
    return c->rank >= 1 && c->rank < size && c->size == size && c->what == what && !c->zero;
}

bool handshake_is_whole(const struct handshake *handshake)
{
    return handshake->got == (int64_t)sizeof handshake->answer;
}

int64_t handshake_take(struct handshake *handshake, const void *bytes, int64_t count)
{
    int64_t taken = min(count, (int64_t)sizeof handshake->answer - handshake->got);
    memcpy((char *)&handshake->answer + handshake->got, bytes, (size_t)taken);
    handshake->got += taken;
    return taken;
}

enum handshake_state handshake_judge(const struct handshake *handshake, const char *secret, int size, int what)
{
    uint8_t proof[HANDSHAKE_HASH];
    if (!handshake_is_whole(handshake))
        return HANDSHAKE_MORE;
    prove(proof, secret, "caller", &handshake->offer, &handshake->answer);
    if (!handshake_same(proof, handshake->answer.proof))
        return HANDSHAKE_WRONG;
    return handshake_may_be(handshake, size, what) ? HANDSHAKE_RIGHT : HANDSHAKE_OTHER;
}

void handshake_welcome(struct handshake_welcome *welcome, const struct handshake *handshake, const char *secret)
{
    prove(welcome->proof, secret, "listener", &handshake->offer, &handshake->answer);
}

static const char REFUSAL[][HANDSHAKE_HASH] = {
    [HANDSHAKE_WRONG] = "refused: another secret\n", [HANDSHAKE_OTHER] = "refused: another run\n"};

void handshake_refuse(struct handshake_welcome *welcome, enum handshake_state why)
{
    memcpy(welcome->proof, REFUSAL[why], HANDSHAKE_HASH);
}

enum handshake_state handshake_refusal(const struct handshake_welcome *welcome)
{
    for (enum handshake_state why = HANDSHAKE_WRONG; why <= HANDSHAKE_OTHER; why++)
        if (!memcmp(welcome->proof, REFUSAL[why], HANDSHAKE_HASH))
            return why;
    return HANDSHAKE_MORE;
}

enum status handshake_answer(struct handshake_answer *answer, const struct handshake_offer *offer, const char *secret, int rank,
                             int size, int what)
{
    *answer = (struct handshake_answer){.caller = {.rank = rank, .size = size, .what = what}};
    if (memcmp(offer->word, WORD, sizeof WORD) != 0)
        return fail(ERR_RANK, "what answers is not hone");
    TRY(handshake_draw(answer->number));
    prove(answer->proof, secret, "caller", offer, answer);
    return OK;
}

bool handshake_trusts(const struct handshake_welcome *welcome, const struct handshake_answer *answer,
                      const struct handshake_offer *offer, const char *secret)
{
    uint8_t proof[HANDSHAKE_HASH];
    prove(proof, secret, "listener", offer, answer);
    return handshake_same(proof, welcome->proof);
}

/* The offer begins with a word that begins otherwise than what follows "caller" here: no key is a proof. */
void handshake_keys(struct handshake_keys *keys, const struct handshake_answer *answer, const struct handshake_offer *offer,
                    const char *secret)
{
    prove(keys->caller, secret, "caller's key", offer, answer);
    prove(keys->listener, secret, "listener's key", offer, answer);
}
