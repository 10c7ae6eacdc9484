/* The input is what a stranger sends to rank 0: a byte that says how the network cuts the rest into pieces, and the rest. Only
 * who knows the secret is let in, and only as a rank of the run; no byte beyond the answer is taken. */
#include <string.h>

#include "base/number.h"
#include "dist/handshake.h"
#include "fuzz.h"

enum { SIZE = 4, WHAT = 2 };

void fuzz_input(const uint8_t *data, size_t size)
{
    struct handshake joining = {.offer = {.word = "hone-3\n"}}; /* the number is 0, so that a right answer can be in the corpus */
    enum handshake_state state = HANDSHAKE_MORE;
    int64_t at = 1, taken, step = size ? data[0] % 32 + 1 : 1;
    while (at < (int64_t)size && state == HANDSHAKE_MORE) {
        int64_t some = min(step, (int64_t)size - at);
        taken = handshake_take(&joining, data + at, some);
        state = handshake_judge(&joining, "fuzz", SIZE, WHAT);
        PROMISE(taken >= 0 && taken <= some && joining.got <= (int64_t)sizeof joining.answer);
        PROMISE(state == HANDSHAKE_MORE ? taken == some : joining.got == (int64_t)sizeof joining.answer);
        at += taken;
    }
    if (state == HANDSHAKE_RIGHT) {
        struct handshake_answer own;
        struct handshake_welcome welcome;
        PROMISE(joining.answer.caller.rank >= 1 && joining.answer.caller.rank < SIZE && joining.answer.caller.what == WHAT);
        handshake_welcome(&welcome, &joining, "fuzz");
        PROMISE(handshake_trusts(&welcome, &joining.answer, &joining.offer, "fuzz"));
        PROMISE(!handshake_trusts(&welcome, &joining.answer, &joining.offer, "other"));
        own = joining.answer;
        own.caller.rank ^= 1; /* the welcome is only for this rank */
        PROMISE(!handshake_trusts(&welcome, &own, &joining.offer, "fuzz"));
    }
    if (size >= 1 + sizeof(struct handshake_offer)) { /* and what a stranger says who pretends to be rank 0 */
        struct handshake_offer offer;
        struct handshake_answer answer;
        struct handshake_welcome welcome = {{0}};
        memcpy(&offer, data + 1, sizeof offer);
        memcpy(&welcome, data + size - sizeof welcome, sizeof welcome);
        if (handshake_answer(&answer, &offer, "fuzz", 1, SIZE, WHAT) == OK)
            PROMISE(!handshake_trusts(&welcome, &answer, &offer, "fuzz"));
    }
}
