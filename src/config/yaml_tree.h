/* A YAML file of another tool as a tree: scalars, lists and mappings, each with its line. Read from events with a stack of fixed
 * depth, so nothing recurses while it is made, and with at most YAML_NODES_MAX nodes. */
#ifndef CONFIG_YAML_TREE_H
#define CONFIG_YAML_TREE_H

#include "base/memory.h"

enum { YAML_DEPTH_MAX = 16, YAML_NODES_MAX = 4096 };

enum yaml_kind { YAML_NULL, YAML_SCALAR, YAML_LIST, YAML_MAPPING };

struct yaml_node {
    enum yaml_kind kind;
    const char *key;  /* in a mapping; "" elsewhere */
    const char *text; /* of a scalar; "" elsewhere */
    int line;
    struct yaml_node *first, *last, *next; /* children in order; the node after this one */
};

/* *root is the file's mapping, in the arena; NULL if the file holds none. After an error it has what was read before it. */
enum status yaml_tree_read(struct yaml_node **root, struct arena *arena, const struct buffer *text, const char *path);

/* The member of a mapping, or NULL; also where `mapping` is NULL or none. */
const struct yaml_node *yaml_member(const struct yaml_node *mapping, const char *key);

#endif
