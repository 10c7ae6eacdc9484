/* Choosing a token: the same as by sorting the whole vocabulary, and what each setting leaves to be drawn. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/number.h"
#include "base/rng.h"
#include "failing.h"
#include "run/sample_token.h"

enum { LARGEST = 151936 };

static struct chooser chooser;
static float logits[LARGEST];

static int open_chooser(void **state)
{
    (void)state;
    return chooser_init(&chooser, LARGEST) != OK;
}

static int close_chooser(void **state)
{
    (void)state;
    chooser_free(&chooser);
    return 0;
}

/* --- the reference: as seeds were first turned into tokens, by a sort of everything ----------------------------------------- */

struct pair {
    double probability;
    int32_t token;
};

static int by_probability(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability < y->probability ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int32_t reference(int64_t vocabulary, const struct sampling *s, int64_t position)
{
    static struct pair list[LARGEST];
    static double probability[LARGEST];
    double max_logit = (double)logits[0], total = 0, kept = 0, least = 0;
    int64_t n = 0, count = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        max_logit = fmax(max_logit, (double)logits[v]);
    for (int64_t v = 0; v < vocabulary; v++) {
        probability[v] = exp(((double)logits[v] - max_logit) / s->temperature);
        list[v] = (struct pair){probability[v], (int32_t)v};
    }
    if (s->top_k) {
        qsort(list, (size_t)vocabulary, sizeof *list, by_probability);
        least = list[s->top_k - 1].probability;
    }
    for (int64_t v = 0; v < vocabulary; v++)
        if (probability[v] >= least) {
            list[n++] = (struct pair){probability[v], (int32_t)v};
            total += probability[v];
        }
    qsort(list, (size_t)n, sizeof *list, by_probability);
    while (count < n && kept < s->top_p * total && list[count].probability >= s->min_p)
        kept += list[count++].probability;
    struct philox r = philox(s->seed, 0, (uint64_t)position);
    double draw = ((double)r.word[0] + (double)r.word[1] * 0x1p-32) * 0x1p-32 * kept;
    for (int64_t i = 0; i < count; i++) {
        draw -= list[i].probability;
        if (draw < 0)
            return list[i].token;
    }
    return list[count - 1].token;
}

static int32_t choose(int64_t vocabulary, const struct sampling *s, int64_t position)
{
    static const int32_t none[1];
    int32_t token = -1;
    assert_ok(sample_token(&chooser, logits, vocabulary, s, &(struct said){.ids = none, .count = position}, &token));
    return token;
}

/* --- logits ----------------------------------------------------------------------------------------------------------------- */

enum kind { SPREAD, PEAKED, TIES, FLAT, FAR, KINDS };

/* Like a model's, with a few tokens far above the others, with many equal ones, all equal, and beyond what exp can express. */
static void fill(enum kind kind, int64_t vocabulary, uint64_t seed)
{
    for (int64_t v = 0; v < vocabulary; v++) {
        struct philox r = philox(seed, 7, (uint64_t)v);
        float normal[2];
        philox_normal(r.word[0], r.word[1], normal);
        logits[v] = kind == FLAT     ? 3
                    : kind == TIES   ? roundf(normal[0] * 2)
                    : kind == FAR    ? normal[0] * 400
                    : kind == PEAKED ? normal[0] + (r.word[2] % 997 ? 0 : 12)
                                     : normal[0] * 3;
    }
}

/* Seen to fail: with a bucket's sum left out, and with equal weights in another order. */
static void tokens_are_those_of_the_sorted_vocabulary(void **state)
{
    (void)state;
    static const int64_t sizes[] = {32, 259, 1000, 49152, LARGEST}, turns[] = {900, 900, 900, 6, 6};
    static const double temperatures[] = {0.05, 0.7, 1, 1.5, 8}, top_p[] = {0.1, 0.5, 0.9, 0.95, 0.999, 1};
    int64_t choices = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int j = 0; j < turns[i]; j++) {
                struct sampling s = {.temperature = temperatures[j % 5], .top_p = top_p[j % 6], .seed = (uint64_t)j / 3};
                fill((enum kind)kind, sizes[i], (uint64_t)j);
                int32_t want = reference(sizes[i], &s, j), got = choose(sizes[i], &s, j);
                if (want != got)
                    fail_msg("V %lld, kind %d, temperature %g, top_p %g: %d, not %d", (long long)sizes[i], kind, s.temperature,
                             s.top_p, (int)got, (int)want);
                choices++;
            }
    print_message("%lld choices\n", (long long)choices);
}

/* Where top_p ends at a token to the last digit, sums in another order end at the one before or after. Seen to fail: with 0 for
 * the margin. */
static void sums_that_end_at_a_border_are_those_of_the_sorted_vocabulary(void **state)
{
    (void)state;
    enum { V = 100 };
    struct pair list[V];
    for (int j = 0; j < 20000; j++) {
        double total = 0, sum = 0;
        fill(SPREAD, V, (uint64_t)j / 100);
        double max_logit = (double)logits[0];
        for (int v = 1; v < V; v++)
            max_logit = fmax(max_logit, (double)logits[v]);
        for (int v = 0; v < V; v++) {
            list[v] = (struct pair){exp(((double)logits[v] - max_logit) / 8), v};
            total += list[v].probability;
        }
        qsort(list, V, sizeof *list, by_probability);
        for (int i = 0; i <= j % 50; i++)
            sum += list[i].probability;
        struct sampling s = {.temperature = 8, .top_p = sum / total, .seed = (uint64_t)j};
        assert_int_equal(choose(V, &s, j), reference(V, &s, j));
    }
}

/* Seen to fail: with top_k one more; with the sum of top_p over tokens that top_k left out; with min_p of the sum. */
static void top_k_and_min_p_leave_out_what_they_say(void **state)
{
    (void)state;
    static const int64_t top_k[] = {0, 1, 2, 40, 200, 5000};
    static const double min_p[] = {0, 0.001, 0.1, 1};
    for (int kind = 0; kind < KINDS; kind++)
        for (int j = 0; j < 2000; j++) {
            int64_t vocabulary = j % 100 == 7 ? 20000 : 259;
            struct sampling s = {
                .temperature = 0.3 + j % 4, .top_p = j % 3 ? 0.9 : 1, .seed = (uint64_t)j, .min_p = min_p[j / 6 % 4]};
            s.top_k = min(top_k[j % 6], vocabulary);
            fill((enum kind)kind, vocabulary, (uint64_t)j);
            assert_int_equal(choose(vocabulary, &s, j), reference(vocabulary, &s, j));
        }
    for (int j = 0; j < 1000; j++) { /* two as likely as the second one */
        const float few[] = {1, 5, 3, 4, 4, 0};
        memcpy(logits, few, sizeof few);
        int32_t token = choose(6, &(struct sampling){.temperature = 4, .top_k = 2, .seed = (uint64_t)j}, j);
        assert_true(token == 1 || token == 3 || token == 4);
        token = choose(6, &(struct sampling){.temperature = 1, .min_p = 0.2, .seed = (uint64_t)j}, j);
        assert_true(token == 1 || token == 3 || token == 4);
    }
}

/* Breaks if draws do not follow the probabilities: 4 standard deviations of 20,000 draws. */
static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 20000, TOKENS = 6 };
    const float few[TOKENS] = {0, 1, 2, -1, 0.5f, -3};
    double total = 0, count[TOKENS] = {0};
    memcpy(logits, few, sizeof few);
    for (int i = 0; i < DRAWS; i++)
        count[choose(TOKENS, &(struct sampling){.temperature = 1, .seed = 5}, i)]++;
    for (int i = 0; i < TOKENS; i++)
        total += exp((double)few[i]);
    for (int i = 0; i < TOKENS; i++) {
        double p = exp((double)few[i]) / total;
        assert_true(fabs(count[i] - p * DRAWS) < 4 * sqrt(p * (1 - p) * DRAWS));
    }
}

/* --- biases and penalties --------------------------------------------------------------------------------------------------- */

/* Seen to fail: with a penalty for each time that a token was said where it is one, with the prompt's tokens in the answer's
 * counts, with the bias after the penalty. The oracle sampling compares with transformers. */
static void biases_and_penalties_change_what_they_say(void **state)
{
    (void)state;
    const int32_t ids[] = {0, 1, 1, 2, 3, 3, 3, 900}, biased[] = {2, 5, 901}; /* the first three are the prompt's */
    const float biases[] = {-3, 100, 1}, before[] = {2, -2, 1, 4, 5, 0, 7},
                want[] = {1, -4, -4 - 0.25f - 1.5f, 2 - 0.75f - 1.5f, 5, 100, 7};
    struct sampling s = {.repetition_penalty = 2,
                         .frequency_penalty = 0.25,
                         .presence_penalty = 1.5,
                         .bias_tokens = biased,
                         .biases = biases,
                         .bias_count = 3};
    struct said said = {.ids = ids, .prompt = 3, .count = 8};
    for (int turn = 0; turn < 2; turn++) { /* and leave nothing for the next */
        float now[7];
        memcpy(now, before, sizeof now);
        sample_adjust(now, 7, &s, &said, chooser.seen);
        for (int i = 0; i < 7; i++)
            assert_true(now[i] == want[i]);
    }
    int32_t token;
    assert_ok(sample_token(&chooser, before, 7, &s, &said, &token)); /* also of the most likely token */
    assert_int_equal(token, 5);
}

/* --- log-probabilities ------------------------------------------------------------------------------------------------------ */

/* Breaks if alternatives are not the first of a sort, or of equal ones the wrong one is first. */
static void the_most_likely_tokens_are_sorted(void **state)
{
    (void)state;
    static struct pair list[LARGEST];
    struct likely most;
    assert_ok(likely_init(&most, 50));
    for (int kind = 0; kind < KINDS; kind++) {
        const int64_t V = 1000;
        double total = 0, sum = 0, max_logit = -INFINITY;
        fill((enum kind)kind, V, 3);
        for (int64_t v = 0; v < V; v++) {
            list[v] = (struct pair){(double)logits[v], (int32_t)v};
            max_logit = fmax(max_logit, (double)logits[v]);
        }
        qsort(list, (size_t)V, sizeof *list, by_probability);
        for (int64_t v = 0; v < V; v++)
            total += exp((double)logits[v] - max_logit);
        for (int64_t v = 0; v < V; v++)
            sum += exp(sample_logprob(logits, V, (int32_t)v, &most));
        assert_true(fabs(sum - 1) < 1e-9 && most.count == 50);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(most.ids[i], list[i].token);
            assert_true(fabs(most.logprobs[i] - (list[i].probability - max_logit - log(total))) < 1e-9);
        }
    }
    sample_logprob(logits, 32, 0, &most); /* fewer tokens than places */
    assert_int_equal(most.count, 32);
    likely_free(&most);
}

/* --- time ------------------------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Breaks if the vocabulary is sorted again. */
static void a_choice_is_faster_than_a_sort(void **state)
{
    (void)state;
    static const int64_t sizes[] = {49152, LARGEST};
    for (int i = 0; i < 2; i++)
        for (int kind = 0; kind < FLAT; kind++)
            for (int p = 0; p < 2; p++) {
                enum { TURNS = 3 };
                double best[2] = {1, 1};
                struct sampling s = {.temperature = 1, .top_p = p ? 1 : 0.9, .seed = 1};
                fill((enum kind)kind, sizes[i], 11);
                for (int turn = 0; turn < TURNS; turn++) {
                    double start = now();
                    int32_t got = choose(sizes[i], &s, turn);
                    double middle = now();
                    assert_int_equal(got, reference(sizes[i], &s, turn));
                    best[0] = fmin(best[0], middle - start);
                    best[1] = fmin(best[1], now() - middle);
                }
                print_message("V %lld, %s logits, top_p %g: %.2f ms, with a sort %.2f ms\n", (long long)sizes[i],
                              (const char *[]){"spread", "peaked", "equal"}[kind], s.top_p, best[0] * 1e3, best[1] * 1e3);
                assert_true(best[0] < best[1]);
            }
}

static void failures_are_reported(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct chooser c;
        struct likely most = {0};
        failing_begin(&f);
        enum status status = chooser_init(&c, 64);
        if (status == OK)
            status = likely_init(&most, 8);
        failing_end(&f, status);
        chooser_free(&c);
        likely_free(&most);
    }
    assert_true(f.failed == 6);
    int32_t token;
    fill(SPREAD, 32, 1);
    logits[17] = NAN;
    assert_fails(sample_token(&chooser, logits, 32, &(struct sampling){0}, &(struct said){.count = 4}, &token), ERR_DATA,
                 "the model's logits are not finite at position 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_sorted_vocabulary),
        cmocka_unit_test(sums_that_end_at_a_border_are_those_of_the_sorted_vocabulary),
        cmocka_unit_test(top_k_and_min_p_leave_out_what_they_say),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(biases_and_penalties_change_what_they_say),
        cmocka_unit_test(the_most_likely_tokens_are_sorted),
        cmocka_unit_test(a_choice_is_faster_than_a_sort),
        cmocka_unit_test(failures_are_reported),
    };
    return cmocka_run_group_tests(tests, open_chooser, close_chooser);
}
