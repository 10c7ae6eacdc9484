/* The input is a hub's list of files and, after a zero byte, an index of weights. Whatever a server says, no name of a file leads
 * out of its directory, and no hash is anything but digits. */
#include <string.h>

#include "fuzz.h"
#include "hub/cache.h"
#include "hub/listing.h"

void fuzz_input(const uint8_t *data, size_t size)
{
    size_t cut = fuzz_cut(data, size);
    struct arena arena = {0};
    struct hub_listing listing;
    if (listing_read(&listing, &arena, (const char *)data, (int64_t)cut, "list") == OK) {
        PROMISE(hub_is_commit(listing.commit));
        for (int64_t i = 0; i < listing.count; i++) {
            const struct hub_file *f = &listing.files[i];
            PROMISE(hub_is_below(f->name) && f->size >= 0 && strlen(f->hash) == (f->kind == SHA_1 ? 40 : 64));
            PROMISE(f->hash[strspn(f->hash, "0123456789abcdef")] == 0);
        }
        if (cut < size)
            listing_add(&listing, (const char *)data + cut + 1, (int64_t)(size - cut - 1), "index");
        listing_choose(&listing, NULL, "list");
        listing_choose(&listing, "*.gguf,[a-", "list");
    }
    arena_free(&arena);
}
