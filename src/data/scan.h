/* Where rows begin and end in text that comes in pieces: one JSON object a line, or the elements of one JSON array. */
#ifndef DATA_SCAN_H
#define DATA_SCAN_H

#include <stdbool.h>

#include "data/source.h"

enum scan_place { SCAN_START, SCAN_FIRST, SCAN_AFTER, SCAN_COMMA, SCAN_ENDED }; /* in an array: what may come next */

/* A copy saves a place to return to. */
struct scan {
    const char *text;
    int64_t begin, end; /* text[begin, end) is still to be scanned */
    int64_t line;       /* of text[begin], from 1 */
    bool last;          /* nothing comes after text[end] */
    bool array;
    enum scan_place place;
};

/* The next whole row, moving `begin` after it. None is found where more text is needed, or at the end of the last text. An
 * error between the elements of an array is ERR_FORMAT after the line's number: a line can be skipped, a gap in an array cannot.
 */
enum status scan_row(struct scan *scan, struct source_row *row, bool *found);

#endif
