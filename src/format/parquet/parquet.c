/* Opening a file, choosing columns, and going from row group to row group. The footer says where everything lies; it stays in
 * memory as it is, and the entry of a row group is read when its rows are. */
#include "format/parquet/parquet_inside.h"

#include <string.h>

#include "base/number.h"

enum {
    TAIL = 8,
    HASH_CHUNK = 256 * 1024,
    GROUPS_MAX = 1 << 20,
    FOOTER_MAX = 64 << 20,
    ROWS_MAX = 100000
}; /* ROWS_MAX: that every file may have */

bool parquet_begins(const void *bytes, int64_t count)
{
    return count >= 4 && (memcmp(bytes, "PAR1", 4) == 0 || memcmp(bytes, "PARE", 4) == 0);
}

/* --- the footer --------------------------------------------------------------------------------------------------------- */

static enum status footer_broken(const struct parquet *p, const char *what)
{
    return fail(ERR_FORMAT, "%s: %s; the Parquet file is cut off or damaged: download or write it again", p->path, what);
}

static enum status encrypted(const struct parquet *p)
{
    return fail(ERR_UNSUPPORTED, "%s: the Parquet file is encrypted, which hone does not read; write it without encryption",
                p->path);
}

static enum status read_footer(struct parquet *p)
{
    uint8_t tail[TAIL];
    if (p->reader.size < 4 + TAIL)
        return footer_broken(p, "it has no footer");
    TRY(reader_read_at(&p->reader, p->reader.size - TAIL, tail, TAIL));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return encrypted(p);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return footer_broken(p, "it does not end as Parquet files do");
    int64_t size = tail[0] | (int64_t)tail[1] << 8 | (int64_t)tail[2] << 16 | (int64_t)tail[3] << 24;
    if (size > p->reader.size - 4 - TAIL)
        return footer_broken(p, "its footer begins outside of it");
    if (size > FOOTER_MAX) /* it is held in memory; of a file with holes the size says nothing */
        return fail(
            ERR_LIMIT,
            "%s: a Parquet footer of %lld bytes, at most %d are supported; write the file with fewer row groups or columns",
            p->path, (long long)size, FOOTER_MAX);
    TRY(parquet_hold(p, &p->footer, size));
    return reader_read_at(&p->reader, p->reader.size - TAIL - size, p->footer.data, size);
}

/* The schema is read, the row groups are found. */
static enum status walk_footer(struct parquet *p)
{
    struct thrift t = {.at = p->footer.data, .end = p->footer.data + p->footer.size};
    struct thrift_field f = {0};
    while (thrift_next(&t, &f)) {
        if (f.id == 2 && !p->columns) {
            int64_t count = thrift_list(&t, &f, THRIFT_STRUCT);
            if (!t.broken)
                TRY(parquet_read_schema(p, &t, count));
        } else if (f.id == 3)
            p->rows = thrift_int(&t, &f);
        else if (f.id == 4 && !p->groups.at) {
            struct thrift start = t;
            p->groups_left = thrift_list(&t, &f, THRIFT_STRUCT);
            p->groups = t;
            t = start;
            thrift_skip(&t, &f);
        } else if (f.id == 8)
            return encrypted(p);
        else
            thrift_skip(&t, &f);
    }
    if (t.broken || !p->columns || !p->groups.at || p->rows < 0)
        return footer_broken(p, "its footer is broken");
    if (p->rows > ROWS_MAX && p->rows / PARQUET_FACTOR > p->reader.size)
        return parquet_too_much(p);
    return p->groups_left <= GROUPS_MAX ? OK : footer_broken(p, "it has more than a million row groups");
}

static enum status parquet_open_file(struct parquet *p, const char *path)
{
    p->path = memory_alloc((int64_t)strlen(path) + 1);
    if (!p->path)
        return ERR_MEMORY;
    strcpy(p->path, path);
    TRY(reader_open(&p->reader, p->path));
    TRY(read_footer(p));
    TRY(walk_footer(p));
    p->keys = arena_array(&p->arena, p->columns, (int64_t)sizeof *p->keys);
    return p->keys ? OK : ERR_MEMORY;
}

enum status parquet_open(struct parquet **out, const char *path)
{
    *out = NULL;
    struct parquet *p = memory_alloc((int64_t)sizeof *p);
    if (!p)
        return ERR_MEMORY;
    p->reader.fd = -1;
    enum status status = parquet_open_file(p, path);
    if (status == OK)
        *out = p;
    else
        parquet_close(p);
    return status;
}

void parquet_close(struct parquet *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->leaf_count; i++) {
        parquet_release(p, &p->leaves[i].dictionary);
        parquet_release(p, &p->leaves[i].offsets);
        parquet_release(p, &p->leaves[i].page);
    }
    parquet_release(p, &p->packed);
    parquet_release(p, &p->footer);
    memory_free(p->leaves);
    memory_free(p->nodes);
    arena_free(&p->arena);
    reader_close(&p->reader);
    memory_free(p->path);
    memory_free(p);
}

/* --- columns ------------------------------------------------------------------------------------------------------------ */

int parquet_columns(const struct parquet *p)
{
    return p->columns;
}

static const struct node *column_node(const struct parquet *p, int column)
{
    const struct node *node = &p->nodes[p->nodes[0].first];
    for (int i = 0; i < column; i++)
        node = &p->nodes[node->next];
    return node;
}

const char *parquet_column(const struct parquet *p, int column)
{
    return column_node(p, column)->name;
}

enum status parquet_choose(struct parquet *p, int column, const char *key)
{
    const struct node *node = column_node(p, column);
    for (int i = node->leaf; i < node->leaf + node->leaves; i++)
        if (p->leaves[i].refused)
            return fail(
                ERR_UNSUPPORTED,
                "%s: column \"%s\" has the type %s, which hone does not read: strings, integers, floats and booleans, and "
                "structs and lists of them",
                p->path, p->leaves[i].column, p->leaves[i].refused);
    for (int i = node->leaf; i < node->leaf + node->leaves; i++)
        p->leaves[i].chosen = true;
    p->keys[column] = arena_text(&p->arena, key, (int64_t)strlen(key));
    return p->keys[column] ? OK : ERR_MEMORY;
}

/* --- row groups --------------------------------------------------------------------------------------------------------- */

/* What the footer says of a column in a row group. */
struct chunk {
    int64_t type, codec, entries, size, data, dictionary;
    bool elsewhere, is_encrypted, is_there;
};

static void read_chunk_data(struct thrift *t, struct chunk *c)
{
    struct thrift_field f = {0};
    c->is_there = true;
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: c->type = thrift_int(t, &f); break;
        case 4: c->codec = thrift_int(t, &f); break;
        case 5: c->entries = thrift_int(t, &f); break;
        case 7: c->size = thrift_int(t, &f); break;
        case 9: c->data = thrift_int(t, &f); break;
        case 11: c->dictionary = thrift_int(t, &f); break;
        default: thrift_skip(t, &f);
        }
    }
}

static void read_chunk(struct thrift *t, struct chunk *c)
{
    struct thrift_field f = {0};
    *c = (struct chunk){0};
    while (thrift_next(t, &f)) {
        c->elsewhere |= f.id == 1;
        c->is_encrypted |= f.id == 8 || f.id == 9;
        if (f.id == 3) {
            thrift_enter(t, &f);
            read_chunk_data(t, c);
        } else
            thrift_skip(t, &f);
    }
}

static enum status open_chunk(struct parquet *p, struct leaf *leaf, const struct chunk *c)
{
    static const char *const names[] = {"UNCOMPRESSED", "Snappy", "gzip", "LZO", "Brotli", "LZ4", "zstd", "LZ4_RAW"};
    static const enum codec codecs[] = {[1] = CODEC_SNAPPY, [2] = CODEC_GZIP, [6] = CODEC_ZSTD};
    int64_t start = c->dictionary > 0 && c->dictionary < c->data ? c->dictionary : c->data, end;
    if (c->is_encrypted)
        return encrypted(p);
    if (c->elsewhere)
        return parquet_refuse(p, leaf, "lies in", "another file");
    if (!c->is_there || c->type != (int64_t)leaf->type || c->entries < 0)
        return parquet_broken(p, leaf, "the footer's entry of it is broken");
    if (c->codec < 0 || c->codec > 7 || (c->codec && !codecs[min(c->codec, 6)]) || c->codec == 7)
        return parquet_refuse(p, leaf, "is packed by",
                              c->codec < 0 || c->codec > 7 ? "a codec that is not known" : names[c->codec]);
    if (!c->entries) /* of no rows, it lies nowhere */
        start = end = 0;
    else if (start < 4 || c->size < 0 || __builtin_add_overflow(start, c->size, &end) || end > p->reader.size)
        return parquet_broken(p, leaf, "it lies outside of the file");
    leaf->codec = codecs[c->codec];
    leaf->position = start;
    leaf->end = end;
    leaf->entries = c->entries;
    leaf->left = leaf->dictionary_count = 0;
    leaf->peeked = false;
    return OK;
}

static enum status open_chunks(struct parquet *p, struct thrift *t, int64_t count)
{
    if (count != p->leaf_count)
        return footer_broken(p, "a row group has not the columns of the schema");
    for (int64_t i = 0; i < count; i++) {
        struct chunk c;
        read_chunk(t, &c);
        if (t->broken)
            return footer_broken(p, "its footer is broken");
        if (p->leaves[i].chosen)
            TRY(open_chunk(p, &p->leaves[i], &c));
    }
    return OK;
}

/* The columns of a row group have ended where its rows did. */
static enum status parquet_close_group(struct parquet *p)
{
    for (int64_t i = 0; i < p->leaf_count; i++) {
        const struct leaf *leaf = &p->leaves[i];
        if (leaf->chosen && (leaf->entries || leaf->left || leaf->peeked))
            return parquet_broken(p, leaf, "it has more values than there are rows");
    }
    return OK;
}

static enum status next_group(struct parquet *p)
{
    struct thrift *t = &p->groups;
    const uint8_t *before = t->at;
    struct thrift_field f = {0};
    bool columns = false;
    if (p->group)
        TRY(parquet_close_group(p));
    p->group++;
    p->groups_left--;
    p->rows_left = -1;
    while (thrift_next(t, &f)) {
        if (f.id == 1 && !columns) {
            int64_t count = thrift_list(t, &f, THRIFT_STRUCT);
            if (!t->broken)
                TRY(open_chunks(p, t, count));
            columns = true;
        } else if (f.id == 3)
            p->rows_left = thrift_int(t, &f);
        else
            thrift_skip(t, &f);
    }
    if (t->broken || !columns || p->rows_left < 0 || p->rows_left > p->rows - p->row)
        return footer_broken(p, "the footer's entry of a row group is broken");
    return parquet_spend(p, t->at - before);
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

enum status parquet_next(struct parquet *p, struct buffer *text, bool *more)
{
    int64_t before = text->size;
    *more = false;
    while (!p->rows_left) {
        if (!p->groups_left) {
            if (p->group)
                TRY(parquet_close_group(p));
            return p->row == p->rows ? OK : footer_broken(p, "its row groups have fewer rows than its footer says");
        }
        TRY(next_group(p));
    }
    TRY(parquet_write_row(p, text));
    p->rows_left--;
    p->row++;
    *more = true;
    return parquet_spend(p, text->size - before);
}

enum status parquet_digest(const struct parquet *p, struct digest *digest)
{
    struct hash hash;
    char *chunk = memory_alloc(HASH_CHUNK);
    enum status status = chunk ? OK : ERR_MEMORY;
    hash_init(&hash);
    for (int64_t at = 0; at < p->reader.size && status == OK; at += HASH_CHUNK) {
        int64_t count = min(HASH_CHUNK, p->reader.size - at);
        status = reader_read_at(&p->reader, at, chunk, count);
        if (status == OK)
            hash_add(&hash, chunk, count);
    }
    memory_free(chunk);
    *digest = hash_end(&hash);
    return status;
}
