/* Putting rows together.
 *
 * The idea: a row's tree is walked down the schema. What the first leaf of a node says (its definition level: is the node there;
 * its repetition level: does the list go on) must be what all its leaves say, so each entry that is taken is compared with the
 * repetition level that the walk expects of it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_quote.h"
#include "base/number.h"
#include "format/parquet/parquet_inside.h"

#define ROW_BYTES_MAX ((int64_t)8 << 20) /* of a row's text, and half of the file; at most 64 MB */

enum { ABSENT_COST = 16 }; /* of an entry of what is not there: it takes the time of so many bytes, and no byte of the file */

static enum status write_node(struct parquet *p, const struct node *node, int rep, struct buffer *out);

/* Takes the entry of a leaf, which must continue the row at this repetition level. */
static enum status take_entry(struct parquet *p, struct leaf *leaf, int rep)
{
    TRY(column_peek(p, leaf));
    if (leaf->peek_rep != rep)
        return parquet_broken(p, leaf, "its lists have other lengths than those next to it");
    leaf->peeked = false;
    return OK;
}

/* A node that is not there, or a list without elements: each of its leaves has one entry that says so. */
static enum status take_nothing(struct parquet *p, const struct node *node, int rep, int below)
{
    TRY(parquet_spend(p, (int64_t)node->leaves * ABSENT_COST));
    for (int i = node->leaf; i < node->leaf + node->leaves; i++) {
        TRY(take_entry(p, &p->leaves[i], rep));
        if (p->leaves[i].peek_def >= below)
            return parquet_broken(p, &p->leaves[i], "it has a value where those next to it have none");
    }
    return OK;
}

static enum status write_real(struct buffer *out, double x, int digits)
{
    char text[40];
    if (!isfinite(x))
        return buffer_append(out, "null", 4);
    int n = snprintf(text, sizeof text, "%.*g", digits, x);
    for (char *c = text; *c; c++)
        if (*c == ',') /* the point of some locales */
            *c = '.';
    TRY(buffer_append(out, text, n));
    return strpbrk(text, ".e") ? OK : buffer_append(out, ".0", 2);
}

/* Whether so many bytes more fit into the row. */
static enum status parquet_rows_check_row(struct parquet *p, const struct buffer *out, int64_t more)
{
    int64_t limit = min(ROW_BYTES_MAX + p->reader.size / 2, (int64_t)64 << 20);
    if (out->size - p->row_begin + more <= limit)
        return OK;
    return fail(ERR_LIMIT, "%s:%lld: the row that begins here is longer than %lld MB", p->path, (long long)p->row + 1,
                (long long)(limit >> 20));
}

static enum status write_value(struct parquet *p, struct leaf *leaf, struct buffer *out)
{
    const uint8_t *bytes;
    int64_t count, wide;
    int32_t narrow;
    float single;
    double real;
    TRY(column_value(p, leaf, &bytes, &count));
    switch (leaf->type) {
    case P_BOOLEAN: return buffer_format(out, "%s", *bytes ? "true" : "false");
    case P_INT32:
        memcpy(&narrow, bytes, sizeof narrow);
        return buffer_format(out, "%lld", leaf->is_unsigned ? (long long)(uint32_t)narrow : (long long)narrow);
    case P_INT64:
        memcpy(&wide, bytes, sizeof wide);
        return leaf->is_unsigned ? buffer_format(out, "%llu", (unsigned long long)wide)
                                 : buffer_format(out, "%lld", (long long)wide);
    case P_FLOAT: memcpy(&single, bytes, sizeof single); return write_real(out, (double)single, 17);
    case P_DOUBLE: memcpy(&real, bytes, sizeof real); return write_real(out, real, 17);
    default:
        TRY(parquet_rows_check_row(p, out, json_quoted_size((const char *)bytes, count)));
        return json_quote(out, (const char *)bytes, count);
    }
}

/* The elements, as long as the first leaf goes on at this level. */
static enum status write_items(struct parquet *p, const struct node *list, int rep, struct buffer *out)
{
    struct leaf *leaf = &p->leaves[list->leaf];
    for (bool more = true; more;) {
        TRY(write_node(p, &p->nodes[list->first], rep, out));
        rep = list->rep;
        more = leaf->peeked || leaf->left || leaf->entries; /* a list may end where the chunk does */
        if (more) {
            TRY(column_peek(p, leaf));
            more = leaf->peek_rep == rep;
        }
        if (more)
            TRY(buffer_append(out, ",", 1));
    }
    return OK;
}

static enum status write_fields(struct parquet *p, const struct node *node, int rep, struct buffer *out)
{
    for (int i = node->first; i >= 0; i = p->nodes[i].next) {
        TRY(json_quote(out, p->nodes[i].name, (int64_t)strlen(p->nodes[i].name)));
        TRY(buffer_append(out, ":", 1));
        TRY(write_node(p, &p->nodes[i], rep, out));
        if (p->nodes[i].next >= 0)
            TRY(buffer_append(out, ",", 1));
    }
    return OK;
}

static enum status write_node(struct parquet *p, const struct node *node, int rep, struct buffer *out)
{
    struct leaf *leaf = &p->leaves[node->leaf];
    TRY(column_peek(p, leaf));
    TRY(parquet_rows_check_row(p, out, 0));
    if (leaf->peek_def < node->def) {
        TRY(take_nothing(p, node, rep, node->def));
        return buffer_append(out, "null", 4);
    }
    if (node->kind == NODE_VALUE) {
        TRY(take_entry(p, leaf, rep));
        return write_value(p, leaf, out);
    }
    bool list = node->kind == NODE_LIST;
    TRY(buffer_append(out, list ? "[" : "{", 1));
    if (!list)
        TRY(write_fields(p, node, rep, out));
    else if (leaf->peek_def < node->item)
        TRY(take_nothing(p, node, rep, node->item));
    else
        TRY(write_items(p, node, rep, out));
    return buffer_append(out, list ? "]" : "}", 1);
}

enum status parquet_write_row(struct parquet *p, struct buffer *out)
{
    const struct node *node = &p->nodes[p->nodes[0].first];
    bool some = false;
    p->row_begin = out->size;
    TRY(buffer_append(out, "{", 1));
    for (int i = 0; i < p->columns; i++, node = &p->nodes[max(node->next, 0)]) {
        if (!p->keys[i])
            continue;
        if (some)
            TRY(buffer_append(out, ",", 1));
        TRY(json_quote(out, p->keys[i], (int64_t)strlen(p->keys[i])));
        TRY(buffer_append(out, ":", 1));
        TRY(write_node(p, node, 0, out));
        some = true;
    }
    return buffer_append(out, "}\n", 2);
}
