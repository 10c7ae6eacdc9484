/* Packing: rows laid together in windows of a fixed number of tokens, longest first, so that windows are full.
 *
 * The idea: rows of one length are interchangeable, so a window is a list of lengths, and as many windows are filled by one list
 * as there are rows of these lengths. The lists are few, however many rows there are, and besides them only the rows sorted by
 * length are kept: 8 bytes each.
 */
#ifndef DATA_PACKING_H
#define DATA_PACKING_H

#include "data/data.h"

/* So many rows of one length in each window of a group: those from `item` on among all of this length. */
struct pack_entry {
    int64_t length, times, item;
};

/* Equal windows. */
struct pack_group {
    int64_t begin; /* its first window */
    int64_t entry, entries;
};

struct packing {
    int64_t first, rows; /* the rows of the data set that are packed */
    int64_t window;      /* tokens */
    int64_t windows;
    int64_t max_rows; /* of a window */
    int64_t longest;
    struct pack_group *groups;
    struct pack_entry *entries;
    int64_t group_count, group_capacity, entry_count, entry_capacity;
    int64_t *length_begin; /* [longest + 2] where the rows of a length begin in `sorted` */
    struct table sorted;   /* int64 [rows] */
    struct table order;    /* int64 [rows] windows by their first rows; only in_order */
};

/* Each row must fit into the window. in_order: windows are numbered in the order of their first rows; else in any order. */
enum status packing_init(struct packing *p, const struct data *data, int64_t first, int64_t rows, int64_t window, bool in_order);
void packing_free(struct packing *p);

/* The rows of a window, ascending, at most max_rows. Nothing is allocated. */
void packing_window(const struct packing *p, int64_t window, int64_t *rows, int64_t *count);

#endif
