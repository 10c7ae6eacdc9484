/* The schema: a list of elements in the order of a walk down the tree, each with the number of its children.
 *
 * The idea: what is optional raises the definition level by one, what is repeated raises both levels. A list is a group marked
 * LIST around a repeated group around the element; older writers leave out one or both of these groups, and the rules for telling
 * (LogicalTypes.md of the format) are in is_element.
 */
#include <string.h>

#include "base/utf8.h"
#include "format/parquet/parquet_inside.h"

enum { NESTING_MAX = 32, ELEMENTS_MAX = 20000, SHOWN_MAX = 60 };
enum repetition { REQUIRED, OPTIONAL, REPEATED };

enum converted { C_NONE = -1, C_UTF8, C_MAP, C_MAP_KEY_VALUE, C_LIST, C_ENUM, C_UINT_8 = 11, C_UINT_64 = 14, C_JSON = 19 };
enum logical { L_STRING = 1, L_MAP, L_LIST, L_ENUM, L_INTEGER = 10, L_UNKNOWN, L_JSON };

static const char *const CONVERTED[] = {
    [5] = "DECIMAL",           [6] = "DATE",  [7] = "TIME_MILLIS", [8] = "TIME_MICROS", [9] = "TIMESTAMP_MILLIS",
    [10] = "TIMESTAMP_MICROS", [20] = "BSON", [21] = "INTERVAL",
};
static const char *const LOGICAL[] = {
    [2] = "MAP",   [5] = "DECIMAL",  [6] = "DATE",     [7] = "TIME",      [8] = "TIMESTAMP",  [13] = "BSON",
    [14] = "UUID", [15] = "FLOAT16", [16] = "VARIANT", [17] = "GEOMETRY", [18] = "GEOGRAPHY",
};

struct element {
    int type, repetition, converted, logical;
    int64_t children; /* -1: it is a value */
    bool is_unsigned;
    struct thrift_bytes name;
};

struct walk {
    struct parquet *p;
    struct thrift *t;
    int64_t left;      /* elements */
    const char *shown; /* the name of the column that is read */
};

static enum status schema_broken(const struct walk *w, const char *what)
{
    return fail(ERR_FORMAT, "%s: the Parquet footer is broken: %s; download or write the file again", w->p->path, what);
}

static void read_logical(struct thrift *t, struct element *e)
{
    struct thrift_field f = {0}, in = {0};
    while (thrift_next(t, &f)) {
        e->logical = f.id;
        if (f.id != L_INTEGER) {
            thrift_skip(t, &f);
            continue;
        }
        thrift_enter(t, &f);
        while (thrift_next(t, &in))
            if (in.id == 2)
                e->is_unsigned = !thrift_bool(t, &in);
            else
                thrift_skip(t, &in);
    }
}

static enum status read_element(struct walk *w, struct element *e)
{
    struct thrift_field f = {0};
    if (w->left-- <= 0)
        return schema_broken(w, "a group has more fields than there are elements");
    *e = (struct element){.type = -1, .repetition = REQUIRED, .converted = C_NONE, .children = -1};
    while (thrift_next(w->t, &f)) {
        switch (f.id) {
        case 1: e->type = (int)thrift_int(w->t, &f); break;
        case 3: e->repetition = (int)thrift_int(w->t, &f); break;
        case 4: e->name = thrift_binary(w->t, &f); break;
        case 5: e->children = thrift_int(w->t, &f); break;
        case 6: e->converted = (int)thrift_int(w->t, &f); break;
        case 10:
            thrift_enter(w->t, &f);
            read_logical(w->t, e);
            break;
        default: thrift_skip(w->t, &f);
        }
    }
    if (w->t->broken)
        return schema_broken(w, "the schema is no Thrift");
    bool group = e->children > 0;
    if (!group && (e->children == 0 && e->type < 0))
        return schema_broken(w, "a group has no fields");
    if (e->repetition < REQUIRED || e->repetition > REPEATED || (!group && (e->type < 0 || e->type >= P_TYPES)))
        return schema_broken(w, "an element of the schema has an unknown type");
    if (e->name.size && memchr(e->name.data, 0, (size_t)e->name.size))
        return schema_broken(w, "a name has a zero byte in it");
    e->is_unsigned |= e->converted >= C_UINT_8 && e->converted <= C_UINT_64;
    return OK;
}

/* The name of a type that is not read, or NULL. */
static const char *schema_refused(const struct element *e)
{
    static const char *const types[] = {[P_INT96] = "INT96", [P_FIXED] = "FIXED_LEN_BYTE_ARRAY"};
    const char *name = NULL;
    if (e->logical > 0 && e->logical < (int)(sizeof LOGICAL / sizeof *LOGICAL))
        name = LOGICAL[e->logical];
    else if (e->logical > 0)
        name = "of a logical type that hone does not know";
    else if (e->converted > 0 && e->converted < (int)(sizeof CONVERTED / sizeof *CONVERTED))
        name = CONVERTED[e->converted];
    if (name)
        return name;
    if (e->type == P_INT96 || e->type == P_FIXED)
        return types[e->type];
    bool text = e->logical == L_STRING || e->logical == L_ENUM || e->logical == L_JSON || e->converted == C_UTF8 ||
                e->converted == C_ENUM || e->converted == C_JSON || e->logical == L_UNKNOWN;
    return e->type == P_BYTE_ARRAY && !text ? "BYTE_ARRAY without the mark of a string" : NULL;
}

static enum status schema_add_node(struct walk *w, const struct element *e, enum node_kind kind, int *out)
{
    struct parquet *p = w->p;
    TRY(memory_grow(&p->nodes, &p->node_capacity, p->node_count + 1, (int64_t)sizeof *p->nodes));
    char *name = arena_text(&p->arena, (const char *)e->name.data, e->name.size);
    if (!name)
        return ERR_MEMORY;
    *out = (int)p->node_count++;
    p->nodes[*out] = (struct node){.kind = kind, .name = name, .first = -1, .next = -1, .leaf = (int)p->leaf_count};
    return OK;
}

static enum status add_leaf(struct walk *w, const struct element *e, int def, int rep, const char *why)
{
    struct parquet *p = w->p;
    TRY(memory_grow(&p->leaves, &p->leaf_capacity, p->leaf_count + 1, (int64_t)sizeof *p->leaves));
    p->leaves[p->leaf_count++] = (struct leaf){.type = (enum physical)e->type,
                                               .is_unsigned = e->is_unsigned,
                                               .def = def,
                                               .rep = rep,
                                               .refused = why ? why : schema_refused(e),
                                               .column = w->shown};
    return OK;
}

struct place {
    int def, rep, depth;
    const char *refused; /* what it lies in is not read */
};

static enum status read_node(struct walk *w, const struct element *e, struct place at, int *out);

/* A field as it is, whatever its repetition says. */
static enum status schema_read_field(struct walk *w, const struct element *e, struct place at, int *out)
{
    int last = -1;
    TRY(schema_add_node(w, e, e->children > 0 ? NODE_STRUCT : NODE_VALUE, out));
    w->p->nodes[*out].def = at.def;
    if (e->children <= 0)
        TRY(add_leaf(w, e, at.def, at.rep, at.refused));
    at.depth++;
    for (int64_t i = 0; i < e->children; i++) {
        struct element child;
        int node;
        TRY(read_element(w, &child));
        TRY(read_node(w, &child, at, &node));
        if (last < 0)
            w->p->nodes[*out].first = node;
        else
            w->p->nodes[last].next = node;
        last = node;
    }
    w->p->nodes[*out].leaves = (int)w->p->leaf_count - w->p->nodes[*out].leaf;
    return OK;
}

/* Whether the repeated field of a list is its element, and not a group around it. */
static bool is_element(const struct walk *w, const struct element *list, const struct element *repeated)
{
    int64_t n = list->name.size, m = repeated->name.size;
    const char *name = (const char *)repeated->name.data;
    if (repeated->children != 1 || (m == 5 && memcmp(name, "array", 5) == 0) ||
        (m == n + 6 && memcmp(name, list->name.data, (size_t)n) == 0 && memcmp(name + n, "_tuple", 6) == 0))
        return true;
    struct thrift ahead = *w->t;
    struct walk look = {.p = w->p, .t = &ahead, .left = w->left};
    struct element inner;
    return read_element(&look, &inner) == OK && inner.repetition == REPEATED;
}

/* The element inside of what is repeated, with the levels of that. */
static enum status schema_read_items(struct walk *w, const struct element *list, const struct element *repeated, struct place at,
                                     int out)
{
    struct element inner;
    int item;
    at.depth++;
    w->p->nodes[out].rep = ++at.rep;
    w->p->nodes[out].item = ++at.def;
    if (!list || is_element(w, list, repeated))
        TRY(schema_read_field(w, repeated, at, &item));
    else {
        TRY(read_element(w, &inner));
        TRY(read_node(w, &inner, at, &item));
    }
    w->p->nodes[out].first = item;
    w->p->nodes[out].leaves = (int)w->p->leaf_count - w->p->nodes[out].leaf;
    return OK;
}

static enum status read_node(struct walk *w, const struct element *e, struct place at, int *out)
{
    if (at.depth >= NESTING_MAX)
        return schema_broken(w, "the schema is nested too deeply");
    if (e->repetition == REPEATED) { /* without a group around it */
        TRY(schema_add_node(w, e, NODE_LIST, out));
        w->p->nodes[*out].def = at.def;
        return schema_read_items(w, NULL, e, at, *out);
    }
    at.def += e->repetition == OPTIONAL;
    bool group = e->children > 0, map = e->logical == L_MAP || e->converted == C_MAP || e->converted == C_MAP_KEY_VALUE;
    if (group && map && !at.refused)
        at.refused = "MAP";
    else if (group && e->logical == 16 && !at.refused)
        at.refused = LOGICAL[16];
    if (!group || e->children != 1 || (e->logical != L_LIST && e->converted != C_LIST))
        return schema_read_field(w, e, at, out);
    struct element repeated;
    TRY(schema_add_node(w, e, NODE_LIST, out));
    w->p->nodes[*out].def = at.def;
    TRY(read_element(w, &repeated));
    if (repeated.repetition != REPEATED)
        return schema_broken(w, "a list has no repeated field");
    return schema_read_items(w, e, &repeated, at, *out);
}

/* A column's name as a message may show it. */
static const char *schema_show(struct walk *w, const struct element *e)
{
    char *shown = arena_text(&w->p->arena, (const char *)e->name.data, e->name.size < SHOWN_MAX ? e->name.size : SHOWN_MAX);
    if (!shown)
        return NULL;
    utf8_clean(shown);
    for (char *c = shown; *c; c++)
        if (*c == '\n' || *c == '\t')
            *c = '?';
    return shown;
}

enum status parquet_read_schema(struct parquet *p, struct thrift *t, int64_t count)
{
    struct walk w = {.p = p, .t = t, .left = count};
    struct element root, e;
    int row, node, last = -1;
    if (count > ELEMENTS_MAX)
        return fail(ERR_LIMIT, "%s: the schema has %lld elements; at most %d are read", p->path, (long long)count, ELEMENTS_MAX);
    TRY(read_element(&w, &root));
    if (root.children <= 0)
        return schema_broken(&w, "the schema has no columns");
    TRY(schema_add_node(&w, &root, NODE_STRUCT, &row));
    for (int64_t i = 0; i < root.children; i++) {
        TRY(read_element(&w, &e));
        if (!(w.shown = schema_show(&w, &e)))
            return ERR_MEMORY;
        TRY(read_node(&w, &e, (struct place){0}, &node));
        if (last < 0)
            p->nodes[row].first = node;
        else
            p->nodes[last].next = node;
        last = node;
    }
    p->columns = (int)root.children;
    return w.left == 0 ? OK : schema_broken(&w, "the schema has elements that belong to no group");
}
