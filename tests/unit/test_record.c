/* base/record.h: structs as JSON objects. */
#include "test.h"

#include <math.h>

#include "base/record.h"

struct part {
    int64_t rows;
};

struct sample {
    int small;
    int64_t large;
    double number, none;
    bool yes, no;
    const char *text, *missing;
    struct part part;
};

static json_t *doubled(const void *record)
{
    const struct sample *s = record;
    return json_integer(2 * (json_int_t)s->large);
}

static json_t *nothing(const void *record)
{
    (void)record;
    return NULL;
}

static const struct record_field fields[] = {
    RECORD(struct sample, text),
    RECORD(struct sample, small),
    RECORD(struct sample, large),
    RECORD_MADE("twice", doubled),
    RECORD(struct sample, number),
    RECORD(struct sample, none),
    RECORD(struct sample, yes),
    RECORD(struct sample, no),
    RECORD(struct sample, missing),
    RECORD_AS("rows_read", struct sample, part.rows),
    {0},
};

static struct sample make(void)
{
    return (struct sample){
        .small = -3, .large = (int64_t)1 << 40, .number = 0.5, .none = NAN, .yes = true, .text = "caf\u00e9", .part = {7}};
}

static void members_come_in_the_order_of_the_table(void **state)
{
    (void)state;
    struct sample s = make();
    json_t *tree = record_json(fields, &s);
    char *text = json_dumps(tree, JSON_COMPACT);
    assert_string_equal(text,
                        "{\"text\":\"caf\u00e9\",\"small\":-3,\"large\":1099511627776,\"twice\":2199023255552,\"number\":0.5,"
                        "\"none\":null,\"yes\":true,\"no\":false,\"missing\":null,\"rows_read\":7}");
    free(text);
    json_decref(tree);
}

static void what_cannot_be_told_is_no_record(void **state)
{
    (void)state;
    static const struct record_field broken[] = {RECORD(struct sample, small), RECORD_MADE("never", nothing), {0}};
    static const struct record_field none[] = {{0}};
    struct sample s = make();
    assert_null(record_json(broken, &s));
    s.text = "a path\xff"; /* need not be UTF-8 */
    json_t *tree = record_json(fields, &s);
    assert_string_equal(json_string_value(json_object_get(tree, "text")), "a path?");
    json_decref(tree);
    json_t *empty = record_json(none, &s);
    assert_int_equal(json_object_size(empty), 0);
    json_decref(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_the_order_of_the_table),
        cmocka_unit_test(what_cannot_be_told_is_no_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
