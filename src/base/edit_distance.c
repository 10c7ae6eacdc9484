/* The distance between words, by the usual table over prefixes, keeping three of its rows. */
#include "base/edit_distance.h"

enum { LENGTH_MAX = 63 };

static char edit_distance_letter(char c)
{
    return c == '-' ? '_' : c;
}

static int edit_distance_smaller(int a, int b)
{
    return a < b ? a : b;
}

int edit_distance(const char *a, int64_t a_length, const char *b, int64_t b_length, int limit)
{
    int n = a_length > LENGTH_MAX ? LENGTH_MAX : (int)a_length, m = b_length > LENGTH_MAX ? LENGTH_MAX : (int)b_length;
    if (a_length - b_length > limit || b_length - a_length > limit)
        return limit + 1;
    int rows[3][LENGTH_MAX + 1], least = 0, least_before = 0;
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++)
        before[j] = last[j] = j;
    for (int i = 1; i <= n; i++) {
        if (least > limit && least_before >= limit) /* a later row is made of this one, or of the one before it and a swap */
            return limit + 1;
        least_before = least;
        row[0] = least = i;
        for (int j = 1; j <= m; j++) {
            char x = edit_distance_letter(a[i - 1]), y = edit_distance_letter(b[j - 1]);
            row[j] = edit_distance_smaller(edit_distance_smaller(last[j], row[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == edit_distance_letter(b[j - 2]) && edit_distance_letter(a[i - 2]) == y)
                row[j] = edit_distance_smaller(row[j], before[j - 2] + 1);
            least = edit_distance_smaller(least, row[j]);
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

int edit_distance_max(int64_t length)
{
    return length < 5 ? 1 : length < 12 ? 2 : 3;
}
