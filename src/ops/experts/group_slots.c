/* group_slots: token slots sorted by their expert, in the order of slots within one (ops/experts/expert_slots.h says what comes
 * out).
 *
 * One piece of work, because the offsets of all experts need all counts. An expert without a slot has no tile.
 */
#include "ops/experts/expert_slots.h"

enum { EXPERTS, INPUTS };
enum { N, E, TILES };
enum { NUMBER_E }; /* number */

static void make_tiles(int32_t *tile, int64_t tiles, const int32_t *first, int64_t experts)
{
    int64_t at = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int32_t row = first[e]; row < first[e + 1]; row += EXPERT_TILE, at++) {
            tile[at * TILE_NUMBERS + TILE_EXPERT] = (int32_t)e;
            tile[at * TILE_NUMBERS + TILE_FIRST] = row;
            tile[at * TILE_NUMBERS + TILE_END] = row + EXPERT_TILE < first[e + 1] ? row + EXPERT_TILE : first[e + 1];
        }
    memset(tile + at * TILE_NUMBERS, 0, (size_t)((tiles - at) * TILE_NUMBERS) * sizeof *tile);
}

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *expert = c->data[EXPERTS];
    int32_t *rows = c->data[INPUTS + SORTED_ROWS], *place = c->data[INPUTS + SORTED_PLACE];
    int32_t *first = c->data[INPUTS + SORTED_BEGIN];
    int64_t slots = c->dim[N], experts = c->dim[E];
    if (begin == end)
        return;
    memset(first, 0, (size_t)(experts + 1) * sizeof *first);
    for (int64_t s = 0; s < slots; s++)
        first[expert[s] + 1]++;
    for (int64_t e = 0; e < experts; e++)
        first[e + 1] += first[e];
    for (int64_t s = 0; s < slots; s++) {
        int32_t at = first[expert[s]]++;
        rows[at] = (int32_t)s;
        place[s] = at;
    }
    memmove(first + 1, first, (size_t)experts * sizeof *first); /* each is now where the next one begins */
    first[0] = 0;
    make_tiles(c->data[INPUTS + SORTED_TILES], c->dim[TILES], first, experts);
}

static enum status shape(struct program *p, struct node *n)
{
    enum dtype type = p->types[ROLE_INDEX];
    TRY(node_expect(n, EXPERTS, 2, SHAPE(-1, -1)));
    n->size[N] = value_elements(n->in[EXPERTS]);
    n->size[E] = (int64_t)n->number[NUMBER_E];
    n->size[TILES] = expert_tiles(n->size[N], n->size[E]);
    n->rows = 1;
    if (n->size[E] > EXPERTS_MAX)
        return fail(ERR_UNSUPPORTED, "%lld experts are more than the %d that hone sorts tokens by", (long long)n->size[E],
                    EXPERTS_MAX);
    node_output(p, n, SORTED_ROWS, type, 1, SHAPE(n->size[N]));
    node_output(p, n, SORTED_PLACE, type, 1, SHAPE(n->size[N]));
    node_output(p, n, SORTED_TILES, type, 2, SHAPE(n->size[TILES], TILE_NUMBERS));
    node_output(p, n, SORTED_BEGIN, type, 1, SHAPE(n->size[E] + 1));
    return program_status(p);
}

static const struct op_example examples[] = {
    {.build = example_sorted,
     .fill = example_experts,
     .forward_only = true,
     .axes = {{"T", {1, 67, 300}}, {"k", {1, 8}}, {"E", {1, 8, 300}}}},
    {0},
};

const struct op OP(group_slots) = {
    .name = "group_slots",
    .formula = "slots in the order of their experts, and where each is",
    .inputs = {"experts"},
    .outputs = {"rows", "place", "tiles", "begin"},
    .shape = shape,
    .kernel = {SIGNATURE_group_slots, .host = forward, .group = 256, .rows = 1,
               .defines = DEFINE(EXPERT_TILE) DEFINE(EXPERTS_MAX)},
    .block = 1,
    .cheap = true,
    .examples = examples,
};
