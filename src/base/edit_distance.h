/* How far two words are apart. */
#ifndef BASE_EDIT_DISTANCE_H
#define BASE_EDIT_DISTANCE_H

#include <stdint.h>

/* The minimum number of letters to insert, delete, replace or swap with their neighbour (Damerau and Levenshtein, each place
 * edited once) to turn one word into the other; limit + 1 or more if it is above `limit`. '-' equals '_'; what is longer than 63
 * letters is compared by its length and its beginning. */
int edit_distance(const char *a, int64_t a_length, const char *b, int64_t b_length, int limit);

/* As many edits as are still a slip of the fingers in a word of this length. */
int edit_distance_max(int64_t length);

#endif
