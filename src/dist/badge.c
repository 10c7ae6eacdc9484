/* See badge.h. */
#include "dist/badge.h"

#include <stdio.h>

enum status badge_share(struct group *group, struct badge *all)
{
    struct badge mine = {.id = process_id()};
    process_host(mine.host);
    place_addresses(mine.address);
    TRY(group_share(group, &mine, all, (int64_t)sizeof mine));
    for (int rank = 0; rank < group->size; rank++) {
        GROUP_TEXT(all[rank].host);
        for (int i = 0; i < PLACE_ADDRESSES; i++)
            GROUP_TEXT(all[rank].address[i]);
    }
    return OK;
}

void badge_name(const struct badge *badge, int rank, char name[static BADGE_TEXT])
{
    snprintf(name, BADGE_TEXT, "rank %d (process %lld on %s)", rank, (long long)badge->id, badge->host);
}
