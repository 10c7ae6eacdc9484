/* The filters and tests that the registry lists. */
#ifndef TEXT_JINJA_REGISTRY_H
#define TEXT_JINJA_REGISTRY_H

#include "text/jinja/value.h"

/* filters.c */
callable filter_abs, filter_default, filter_escape, filter_first, filter_float, filter_format, filter_indent, filter_int,
    filter_items, filter_join, filter_last, filter_length, filter_list, filter_reverse, filter_round, filter_safe, filter_string,
    filter_sum, filter_tojson, filter_wordcount;

/* tests.c */
callable test_boolean, test_defined, test_divisibleby, test_equal, test_escaped, test_even, test_greater, test_greater_equal,
    test_in, test_integer, test_is_callable, test_is_false, test_is_float, test_is_true, test_iterable, test_less,
    test_less_equal, test_lower, test_mapping, test_none, test_not_equal, test_number, test_odd, test_sameas, test_sequence,
    test_string, test_undefined, test_upper;

#endif
