/* One walk for all records. */
#include "base/record.h"

#include <string.h>

static json_t *record_value_json(const struct record_field *field, const void *record)
{
    const char *at = (const char *)record + field->offset, *text;
    int small;
    int64_t whole;
    double number;
    bool boolean;
    switch (field->kind) {
    case RECORD_INT: memcpy(&small, at, sizeof small); return json_integer(small);
    case RECORD_INT64: memcpy(&whole, at, sizeof whole); return json_integer((json_int_t)whole);
    case RECORD_NUMBER: memcpy(&number, at, sizeof number); return json_number(number);
    case RECORD_BOOL: memcpy(&boolean, at, sizeof boolean); return json_boolean(boolean);
    case RECORD_TEXT: memcpy(&text, at, sizeof text); return text ? json_lossy(text) : json_null();
    case RECORD_MADE: return field->make(record);
    }
    return NULL;
}

json_t *record_json(const struct record_field *fields, const void *record)
{
    json_t *object = json_object();
    for (; fields->key && object; fields++)
        if (json_object_set_new(object, fields->key, record_value_json(fields, record)) != 0) {
            json_decref(object);
            object = NULL;
        }
    return object;
}
