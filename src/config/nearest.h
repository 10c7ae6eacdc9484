/* How far two words are apart. */
#ifndef CONFIG_NEAREST_H
#define CONFIG_NEAREST_H

#include <stdint.h>

/* The minimum number of letters to insert, delete, replace or swap with their neighbour (Damerau and Levenshtein, each place
 * edited once) to turn one word into the other. '-' equals '_'; what is longer than 63 letters is compared by its beginning. */
int nearest_distance(const char *a, int64_t a_length, const char *b, int64_t b_length);

#endif
