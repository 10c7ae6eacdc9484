/* Filters that go through a list item by item. */
#ifndef TEXT_JINJA_PICK_H
#define TEXT_JINJA_PICK_H

#include "text/jinja/value.h"

callable filter_map, filter_select, filter_reject, filter_selectattr, filter_rejectattr, filter_attr, filter_sum;

#endif
