/* models/adapter_base.h: which weights an adapter was made for, by its digests or else by the name of its base. */
#include "test.h"

#include <string.h>

#include "base/log.h"
#include "export_rig.h"
#include "failing.h"
#include "models/adapter_base.h"

static int warnings;

static void count_warnings(void *context, enum log_level level, const char *message)
{
    (void)context, (void)message;
    warnings += level == LOG_WARNING;
}

/* The adapter with this name of its base and these digests. */
static void write_base(const char *name, const struct base_digests *digests)
{
    struct safetensors *file;
    struct safetensors_tensor list[5];
    const char *pairs[BASE_PAIRS];
    char path[128];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    make_adapter(false);
    assert_ok(safetensors_open(&file, path));
    int64_t count = safetensors_count(file);
    for (int64_t i = 0; i < count; i++)
        list[i] = *safetensors_at(file, i);
    adapter_base_pairs(digests, pairs);
    assert_ok(safetensors_write(path, list, count, pairs));
    safetensors_close(file);
    const char *targets[] = {"layers.0.self_attn.q_proj", "layers.0.mlp.down_proj"};
    struct adapter_config config = {.base_model = name, .rank = RANK_OF_PAIR, .alpha = 6, .targets = targets, .target_count = 2};
    assert_ok(adapter_config_write(&config, adapter));
}

static struct base_digests digests_of_model(void)
{
    struct model m;
    struct base_digests digests;
    assert_ok(model_open(&m, model.dir, NULL, true));
    digest_text(weights_form(&m.weights), digests.form);
    digest_text(weights_sketch(&m.weights, false), digests.sketch);
    assert_ok(weights_digest(&m.weights, false, digests.weights));
    model_close(&m);
    return digests;
}

/* The status of the comparison; and with how many warnings. */
static enum status compare(const struct base_asked *asked, int *told)
{
    struct model m;
    warnings = 0;
    log_set_sink(count_warnings, NULL);
    assert_ok(model_open(&m, model.dir, adapter, true));
    enum status status = adapter_base_check(&m, asked);
    model_close(&m);
    log_set_sink(NULL, NULL);
    *told = warnings;
    return status;
}

/* Fails if digests are not compared, or compared though the form is another, or one that is cut off counts. */
static void digests_decide_before_names(void **state)
{
    (void)state;
    const struct base_asked asked = {.model = model.dir}, any = {.model = model.dir, .any = true};
    const struct base_digests own = digests_of_model();
    struct base_digests digests = own;
    int told;
    write_base("elsewhere", &digests);
    assert_ok(compare(&asked, &told));
    assert_int_equal(told, 0);
    digests.sketch[3] ^= 1;
    write_base("elsewhere", &digests);
    assert_fails(compare(&asked, &told), ERR_ARGUMENT, "which were those of elsewhere");
    assert_ok(compare(&any, &told));
    assert_int_equal(told, 0);
    digests.form[3] ^= 1;
    write_base("elsewhere", &digests);
    assert_ok(compare(&asked, &told));
    assert_int_equal(told, 1);
    digests = own;
    digests.weights[HASH_TEXT - 2] = 0;
    write_base("elsewhere", &digests);
    assert_ok(compare(&asked, &told));
    assert_int_equal(told, 1);
}

/* Fails if a name of the hub, a path or its last part is not known again, or a part of a word is. */
static void names_are_compared_by_their_last_parts(void **state)
{
    (void)state;
    static const struct {
        const char *was, *model, *hub;
        int told;
    } rows[] = {
        {"Org/Tiny", "models/tiny", NULL, 0},
        {"tiny", "tiny///", NULL, 0},
        {"org/tiny", "x/snapshots/0", "org/tiny", 0},
        {"tiny", "notiny", NULL, 1},
        {"org/tiny", "tiny-2", "org/big", 1},
        {"/", "tiny", NULL, 1},
        {NULL, "tiny", NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int told;
        write_base(rows[i].was, NULL);
        assert_ok(compare(&(struct base_asked){.model = rows[i].model, .hub_name = rows[i].hub}, &told));
        assert_int_equal(told, rows[i].told);
    }
    int told;
    write_base(model.dir, NULL);
    assert_ok(compare(&(struct base_asked){.model = model.dir}, &told));
    assert_int_equal(told, 0);
}

/* Fails if the digest of all weights is asked for where it cannot be the same, or one is not found that is there. */
static void all_weights_are_wanted_only_of_the_same_form(void **state)
{
    (void)state;
    const struct base_asked asked = {.model = model.dir}, any = {.model = model.dir, .any = true};
    struct base_digests digests = digests_of_model();
    struct model m;
    char wanted[HASH_TEXT];
    write_base("tiny", &digests);
    assert_ok(model_open(&m, model.dir, adapter, true));
    assert_true(adapter_base_wants(&m, &asked, wanted));
    assert_string_equal(wanted, digests.weights);
    assert_false(adapter_base_wants(&m, &any, wanted));
    model_close(&m);
    digests.form[0] ^= 1;
    write_base("tiny", &digests);
    assert_ok(model_open(&m, model.dir, adapter, true));
    assert_false(adapter_base_wants(&m, &asked, wanted));
    model_close(&m);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct model m;
    char text[HASH_TEXT];
    struct failing f = {0};
    assert_ok(model_open(&m, model.dir, NULL, true));
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = weights_digest(&m.weights, false, text);
        failing_end(&f, status);
    }
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_decide_before_names),
        cmocka_unit_test(names_are_compared_by_their_last_parts),
        cmocka_unit_test(all_weights_are_wanted_only_of_the_same_form),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
