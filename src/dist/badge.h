/* What each rank says of itself when ranks meet: its process, its machine's name and addresses. */
#ifndef DIST_BADGE_H
#define DIST_BADGE_H

#include "base/process.h"
#include "device/group.h"
#include "dist/place.h"

/* Plain bytes, as they are shared. */
struct badge {
    int64_t id;
    char host[PROCESS_HOST];
    char address[PLACE_ADDRESSES][PLACE_NUMERIC];
};

/* All ranks call it: all[rank] is that of each. Texts end within their arrays, whatever a rank sent. */
enum status badge_share(struct group *group, struct badge *all);

/* "rank 3 (process 4711 on node2)" */
enum { BADGE_TEXT = 320 };
void badge_name(const struct badge *badge, int rank, char name[static BADGE_TEXT]);

#endif
