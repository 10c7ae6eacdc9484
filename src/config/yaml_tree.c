/* The tree of a YAML file. */
#include "config/yaml_tree.h"

#include <string.h>

#include "config/yaml_reader.h"

struct builder {
    struct yaml_reader *reader;
    struct arena *arena;
    struct yaml_node *open[YAML_DEPTH_MAX]; /* the lists and mappings around the place */
    int depth, nodes;
};

const struct yaml_node *yaml_member(const struct yaml_node *mapping, const char *key)
{
    for (const struct yaml_node *n = mapping && mapping->kind == YAML_MAPPING ? mapping->first : NULL; n; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

static enum status yaml_tree_copy_text(const struct builder *b, const char **text)
{
    TRY(yaml_check_scalar(b->reader));
    *text = arena_text(b->arena, (const char *)b->reader->event.data.scalar.value, (int64_t)b->reader->event.data.scalar.length);
    return *text ? OK : ERR_MEMORY;
}

/* The current event is a key: it is kept, and the next event is that of its value. */
static enum status yaml_tree_take_key(const struct builder *b, const char **key)
{
    yaml_event_type_t type = b->reader->event.type;
    if (type != YAML_SCALAR_EVENT && type != YAML_ALIAS_EVENT)
        return yaml_fail(b->reader, "a key must be a name");
    TRY(yaml_tree_copy_text(b, key));
    const struct yaml_node *before = yaml_member(b->open[b->depth - 1], *key);
    if (before)
        return fail(ERR_FORMAT, "%s:%d: %.60s was already given in line %d: keep one of them", b->reader->path,
                    yaml_line(b->reader), *key, before->line);
    return yaml_next(b->reader);
}

/* Makes a node of the current event, below the open one. */
static enum status yaml_tree_add_node(struct builder *b, const char *key, struct yaml_node **out)
{
    yaml_event_type_t type = b->reader->event.type;
    struct yaml_node *n = arena_alloc(b->arena, sizeof *n);
    if (!n)
        return ERR_MEMORY;
    *n = (struct yaml_node){.key = key ? key : "", .text = "", .line = yaml_line(b->reader)};
    *out = n;
    if (++b->nodes > YAML_NODES_MAX)
        return yaml_fail(b->reader, "a file with so many values is no configuration");
    n->kind = type == YAML_SEQUENCE_START_EVENT ? YAML_LIST : type == YAML_MAPPING_START_EVENT ? YAML_MAPPING : YAML_SCALAR;
    if (n->kind == YAML_SCALAR) {
        TRY(yaml_tree_copy_text(b, &n->text));
        n->kind = yaml_is_null(b->reader) ? YAML_NULL : YAML_SCALAR;
    }
    if (b->depth) { /* linked only when whole: a value that cannot be read is not there */
        struct yaml_node *parent = b->open[b->depth - 1];
        if (parent->last)
            parent->last->next = n;
        else
            parent->first = n;
        parent->last = n;
    }
    if (n->kind != YAML_LIST && n->kind != YAML_MAPPING)
        return OK;
    if (b->depth == YAML_DEPTH_MAX)
        return yaml_fail(b->reader, "lists and mappings lie too deep inside each other");
    b->open[b->depth++] = n;
    return OK;
}

static enum status yaml_tree_build(struct builder *b, struct yaml_node **root)
{
    TRY(yaml_next(b->reader)); /* the stream's start */
    TRY(yaml_next(b->reader)); /* the document's, or the stream's end */
    if (b->reader->event.type == YAML_STREAM_END_EVENT)
        return OK;
    TRY(yaml_next(b->reader));
    if (b->reader->event.type != YAML_MAPPING_START_EVENT)
        return OK;
    TRY(yaml_tree_add_node(b, NULL, root));
    while (b->depth) {
        const char *key = NULL;
        struct yaml_node *node;
        TRY(yaml_next(b->reader));
        yaml_event_type_t type = b->reader->event.type;
        if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT) {
            b->depth--;
            continue;
        }
        if (b->open[b->depth - 1]->kind == YAML_MAPPING)
            TRY(yaml_tree_take_key(b, &key));
        TRY(yaml_tree_add_node(b, key, &node));
    }
    TRY(yaml_next(b->reader)); /* the document's end */
    TRY(yaml_next(b->reader));
    return b->reader->event.type == YAML_STREAM_END_EVENT ? OK : yaml_fail(b->reader, "only one document is allowed in a file");
}

enum status yaml_tree_read(struct yaml_node **root, struct arena *arena, const struct buffer *text, const char *path)
{
    struct yaml_reader reader;
    *root = NULL;
    TRY(yaml_reader_open(&reader, text, path));
    struct builder b = {.reader = &reader, .arena = arena};
    enum status status = yaml_tree_build(&b, root);
    yaml_reader_close(&reader);
    return status;
}
