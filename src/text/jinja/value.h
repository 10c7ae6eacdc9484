/* The values of a running template, and the strings that remember where their bytes came from.
 *
 * All of it lives in the render's arena and is freed at once. Strings are immutable views: a slice shares bytes and
 * runs with the string it was cut from. New strings are made by a builder, which is the only place that writes bytes
 * and origins; a string whose builder has not grown since can be extended in place, so that `x = x + y` in a loop
 * copies nothing twice.
 */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "text/jinja/jinja.h"

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given; templates never see it */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      /* dict.keys(), .values(), .items(): iterated, not indexed */
    VALUE_GENERATOR, /* the result of map, select and others: iterated once */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD,
};

enum { NO_MESSAGE = -1, OTHER_DATA = -2 }; /* the template; tools and documents */

struct value {
    enum value_kind kind;
    int32_t origin; /* the message it came from; a text has its own */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *name; /* undefined: what was looked up */
        const struct text *text;
        struct list *list; /* list, tuple, range, view, generator */
        struct dict *dict; /* dict, namespace */
        struct loop *loop;
        const struct macro *macro;
        const struct function *function;
        const struct method *method;
    };
};

/* The bytes from the run before up to `end` have this origin and were written at this place. */
struct run {
    int64_t end;
    int32_t origin, place;
};

/* Where in the conversation a template is when it writes: 2 * (message + 1) for the message whose turn it is (0: none), plus 1
 * inside a generation block. */
enum { PLACE_GENERATION = 1, PLACE_TURN = 2 };

struct text {
    const char *data;
    int64_t size;
    const struct run *run;   /* NULL: all bytes have `origin` */
    int64_t run_count, base; /* byte i is at i + base in the runs; the last run may end beyond the text */
    struct builder *owner;
    int32_t origin, place;
    bool markup; /* Python's Markup: what is added to it with + is HTML-escaped */
};

struct list {
    struct value *item;
    int64_t count, next;       /* next: where a generator stands */
    int64_t start, stop, step; /* a range's own numbers */
    const char *type;          /* a view's or generator's Python name */
};

struct entry {
    struct value key, value;
};

struct dict {
    struct entry *entry;
    int64_t count, capacity;
    bool message; /* one of the conversation's messages, not derived from one */
};

struct builder {
    struct render *render;
    char *data;
    int64_t size, capacity, limit; /* limit 0: only the memory budget */
    struct run *run;
    int64_t run_count, run_capacity;
    struct buffer *output; /* the rendered text, whose memory is not the arena's; or NULL */
    bool markup;
};

/* One run of a template. */
struct render {
    struct arena *arena;
    const struct jinja *jinja;
    const char *where;
    struct value *global; /* the context's variables by the number of their name, and the functions */
    int line;             /* of the node being evaluated */
    int32_t place;
    bool counting;            /* the innermost loop is over numbers, so a turn begins where a message is set */
    struct jinja_budget left; /* what remains */
    int64_t granted;          /* steps, from the template's purse; 0: the caller has set the budget */
};

/* Arguments of a call. Names are zero-ended. */
struct args {
    struct value *item;
    int64_t count;
    struct keyword {
        const char *name;
        struct value value;
        const struct text *key; /* the name with its origins, of a member of a dict; NULL: the template's own */
    } * keyword;
    int64_t keyword_count;
};

/* Filters, tests, methods and functions: self is the filtered or tested value or the method's object. */
typedef enum status callable(struct render *render, struct value self, const struct args *args, struct value *out);

struct function {
    const char *name;
    callable *call; /* NULL: known to jinja2, not to hone */
};

struct method {
    const struct function *function;
    struct value self;
};

/* The methods of one name. */
struct methods {
    const struct function *text, *dict, *list, *tuple;
    int loop_field; /* of the loop variable, or -1 */
};

/* --- budget.c: what a render may use --- */

/* Fails with "where:line: " before the message. */
enum status render_fail(struct render *render, enum status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
enum status render_too_long(struct render *render);
enum status render_too_deep(struct render *render);

/* How many bytes are looked at character by character, or items compared, in the time of a step. */
enum { CHARS_A_STEP = 8, ITEMS_A_STEP = 4 };

/* ERR_LIMIT when the budget is used up. */
static inline enum status render_step(struct render *render, int64_t steps)
{
    if (steps > render->left.steps)
        return render_too_long(render);
    render->left.steps -= steps;
    return OK;
}

/* One level deeper; render_leave if it gave OK. */
static inline enum status render_enter(struct render *render)
{
    if (render->left.depth <= 0)
        return render_too_deep(render);
    render->left.depth--;
    return render_step(render, 1);
}

static inline void render_leave(struct render *render)
{
    render->left.depth++;
}

/* Zeroed memory until the end of the render. out: pointer to a pointer. */
enum status render_alloc(struct render *render, int64_t count, int64_t size, void *out);

/* --- value.c: making and reading values --- */

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE, .origin = NO_MESSAGE};
}

static inline struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .origin = NO_MESSAGE, .boolean = boolean};
}

static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .origin = NO_MESSAGE, .integer = integer};
}

static inline struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .origin = NO_MESSAGE, .real = real};
}

static inline struct value value_undefined(const char *name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .origin = NO_MESSAGE, .name = name};
}

enum status value_text(struct render *render, const char *data, int64_t size, int32_t origin, struct value *out); /* not copied */

/* A text that the row brings, and with it what the default budget grants a template for it. */
enum status value_given(struct render *render, const char *data, int64_t size, int32_t origin, struct value *out);

enum status value_list(struct render *render, enum value_kind kind, int64_t count,
                       struct value *out); /* room for count; filled by the caller */
enum status value_dict(struct render *render, enum value_kind kind, struct value *out);
enum status method_bind(struct render *render, struct value self, const struct function *function, struct value *out);
enum status dict_set(struct render *render, struct dict *dict, struct value key, struct value value);
enum status dict_get(struct render *render, const struct dict *dict, struct value key,
                     const struct value **out);                                                       /* NULL: not there */
enum status dict_add(struct render *render, struct dict *dict, struct value key, struct value value); /* of a new key */
enum status dict_find(struct render *render, const struct dict *dict, const char *name, int64_t size,
                      const struct value **out); /* by a string; NULL: not there */

bool value_true(struct value value);
bool value_is_number(struct value value);            /* bool, int, float */
double value_real(struct value v);                   /* of a number */
bool value_is(struct value value, const char *name); /* a text with exactly these bytes */
const char *value_type(struct value value);          /* Python's name of the type */
enum status value_equal(struct render *render, struct value a, struct value b, bool *out);
enum status value_compare(struct render *render, struct value a, struct value b, int *out); /* of two that have an order */
enum status value_contains(struct render *render, struct value container, struct value item, bool *out);

/* The items of anything that can be iterated, in *out; a generator is used up. */
enum status value_items(struct render *render, struct value value, struct list *out);
enum status value_length(struct render *render, struct value value, int64_t *out);

/* Binds arguments to the names of a space-separated list; the first `need` must be given, others stay VALUE_ABSENT. */
enum status args_bind(struct render *render, const struct args *args, const char *what, const char *names, int need,
                      struct value *out);

/* --- text.c: strings with origins --- */

enum status builder_new(struct render *render, struct builder **out);
enum status builder_bytes(struct builder *builder, const char *data, int64_t size, int32_t origin);
enum status builder_slice(struct builder *builder, const struct text *text, int64_t begin, int64_t end);
enum status builder_text(struct builder *builder, const struct text *text);
enum status builder_escaped(struct builder *builder, const struct text *text); /* HTML-escaped unless it is markup */
enum status builder_value(struct builder *builder, struct value *out);         /* its bytes as a text */

int32_t text_run(const struct text *text, int64_t at, int64_t *end); /* the origin at a byte, and where its run ends */
enum status text_slice(struct render *render, const struct text *text, int64_t begin, int64_t end, struct value *out);
enum status text_concat(struct render *render, const struct text *a, const struct text *b, struct value *out);
enum status text_find(struct render *render, const struct text *text, const struct text *part, int64_t from,
                      int64_t *at); /* bytes; -1 */

int64_t char_next(const char *data, int64_t size, int64_t at, int32_t *code); /* where the next character begins */
int64_t char_back(const char *data, int64_t at, int32_t *code);               /* where the character before begins */
int64_t char_count(const char *data, int64_t size);
int64_t char_offset(const char *data, int64_t size, int64_t index); /* the byte where character `index` begins */
bool unicode_space(int32_t code);

/* --- print.c: values as Python prints them --- */

enum status print_value(struct builder *builder, struct value value);                   /* str() */
enum status print_repr(struct builder *builder, struct value value);                    /* repr() */
enum status value_string(struct render *render, struct value value, struct value *out); /* str() as a text value */
enum status print_float(struct builder *builder, double real, int32_t origin);

struct json_style {
    bool ascii, sort;
    const struct text *indent;        /* NULL: on one line */
    const struct text *comma, *colon; /* NULL: Python's defaults */
};

enum status print_json(struct builder *builder, struct value value, const struct json_style *style, int level);

/* --- tables: methods.c, registry.c, globals.c --- */

const struct function *filter_find(const char *name);
const struct function *test_find(const char *name);
const struct function *method_find(struct value self, const char *name);
void methods_find(const char *name, struct methods *out);
const struct function *global_find(const char *name);

/* `function` may be NULL: a name that is not known. */
enum status filter_call(struct render *render, const struct function *function, const char *name, struct value self,
                        const struct args *args, struct value *out);
enum status test_call(struct render *render, const struct function *function, const char *name, struct value self,
                      const struct args *args, bool *out);

static inline const struct function *method_of(const struct methods *methods, enum value_kind kind)
{
    return kind == VALUE_TEXT                           ? methods->text
           : kind == VALUE_DICT                         ? methods->dict
           : kind == VALUE_LIST                         ? methods->list
           : kind == VALUE_TUPLE || kind == VALUE_RANGE ? methods->tuple
                                                        : NULL;
}

/* --- lookup.c: attributes, items, slices --- */

enum status use_of_undefined(struct render *render, struct value self);

enum status value_attribute(struct render *render, struct value self, const char *name, struct value *out); /* self.name */
enum status value_item(struct render *render, struct value self, struct value key, struct value *out);      /* self[key] */
enum status value_slice(struct render *render, struct value self, const struct value part[3], struct value *out);
enum status value_path(struct render *render, struct value self, struct value path,
                       struct value *out); /* "a.b.0", as filters name attributes */

/* --- arithmetic.c --- */

enum status value_add(struct render *render, struct value a, struct value b, struct value *out); /* a + b */

/* --- format.c: "%s" % values and "{}".format(values) --- */

enum status format_percent(struct render *render, const struct text *format, struct value values, struct value *out);
callable format_braces;

/* --- string_methods.c: what string methods and filters share --- */

callable text_strip_both, text_strip_left, text_strip_right, text_replace, text_split, text_rsplit, text_splitlines;
callable text_upper, text_lower, text_title, text_title_words, text_capitalize;

/* --- sort.c --- */

/* Sorts values by keys of the same count, stably. */
enum status sort_values(struct render *render, struct value *value, struct value *key, int64_t count, bool reverse);

/* --- order.c --- */

callable filter_sort, filter_dictsort, filter_unique, filter_min, filter_max;

/* --- loop_variable.c --- */

int loop_field(const char *name); /* the number of loop.index, ...; -1: there is none of this name */
enum status loop_attribute(struct render *render, struct value self, int field, const char *name, struct value *out);

/* --- context.c: from JSON --- */

enum status context_set(struct render *render, int64_t number, const json_t *value); /* by the number of its name */

/* The origin of a key of a message: the template's for the names that the format gives, the message's for those that somebody
 * typed. */
int32_t context_key_origin(const char *key, int64_t size, int32_t message);

/* The origin of a message's role: the template's for a plain word, the message's for what may spell a special token. */
int32_t context_role_origin(const char *role, int64_t size, int32_t message);

#endif
