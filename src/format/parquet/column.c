/* A cursor in a column: page after page of the chunk that a row group has of it.
 *
 * The idea: a page is its repetition levels, its definition levels and its values, one after the other. Levels are read one by
 * one as rows ask for them; a value is read where the levels say that there is one, and points into the page or the dictionary.
 */
#include <string.h>

#include "base/number.h"
#include "format/parquet/parquet_inside.h"

#define SPENT_MAX ((int64_t)8 << 20) /* bytes of work that every file may take */
#define HELD_MAX ((int64_t)40 << 20) /* bytes of pages in memory, and three times the file */
enum { HEADER_DEFAULT = 4096, HEADER_MAX = 16 << 20 };
enum page_type { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };

struct page_header {
    int64_t type, size, packed_size, crc;
    int64_t values, encoding, def_encoding, rep_encoding; /* of a data page or a dictionary */
    int64_t def_bytes, rep_bytes;                         /* of a data page of version 2 */
    bool has_crc, is_packed, has_values;
};

/* --- limits and errors -------------------------------------------------------------------------------------------------- */

enum status parquet_broken(const struct parquet *p, const struct leaf *leaf, const char *what)
{
    return fail(ERR_FORMAT, "%s: column \"%s\", after row %lld: %s; the file is damaged: download or write it again", p->path,
                leaf->column, (long long)p->row, what);
}

enum status parquet_refuse(const struct parquet *p, const struct leaf *leaf, const char *what, const char *name)
{
    return fail(
        ERR_UNSUPPORTED,
        "%s: column \"%s\" %s %s, which hone does not read; write the file again with pyarrow's usual settings: python3 -c "
        "\"import pyarrow.parquet as q, sys; q.write_table(q.read_table(sys.argv[1]), sys.argv[2])\" IN.parquet OUT.parquet",
        p->path, leaf->column, what, name);
}

enum status parquet_too_much(const struct parquet *p)
{
    return fail(ERR_LIMIT, "%s: its rows are more than %d times as large as the file; a file like this is made to do harm",
                p->path, PARQUET_FACTOR);
}

enum status parquet_spend(struct parquet *p, int64_t bytes)
{
    p->spent += bytes;
    return p->spent <= SPENT_MAX || p->spent / PARQUET_FACTOR <= p->reader.size ? OK : parquet_too_much(p);
}

void parquet_release(struct parquet *p, struct block *block)
{
    p->held -= block->capacity;
    memory_free(block->data);
    *block = (struct block){0};
}

enum status parquet_hold(struct parquet *p, struct block *block, int64_t size)
{
    block->size = 0;
    if (size > block->capacity || !block->data) {
        parquet_release(p, block);
        if (p->held + size > HELD_MAX + 3 * p->reader.size)
            return fail(ERR_LIMIT,
                        "%s: its pages are too large to be read: %lld MB of them would be in memory; write it with smaller pages "
                        "(pyarrow's write_batch_size=64 and data_page_size)",
                        p->path, (long long)((p->held + size) >> 20));
        block->data = memory_alloc(size);
        if (!block->data)
            return ERR_MEMORY;
        block->capacity = size;
        p->held += size;
    }
    block->size = size;
    return OK;
}

static enum status refuse_encoding(const struct parquet *p, const struct leaf *leaf, int64_t encoding)
{
    static const char *const names[] = {"PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
                                        "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
                                        "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
    bool known = encoding >= 0 && encoding < (int64_t)(sizeof names / sizeof *names);
    return parquet_refuse(p, leaf, "has the encoding", known ? names[encoding] : "of a number that is not known");
}

/* --- pages -------------------------------------------------------------------------------------------------------------- */

static void read_data_header(struct thrift *t, struct page_header *h)
{
    struct thrift_field f = {0};
    h->has_values = true;
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->values = thrift_int(t, &f); break;
        case 2: h->encoding = thrift_int(t, &f); break;
        case 3: h->def_encoding = thrift_int(t, &f); break;
        case 4: h->rep_encoding = thrift_int(t, &f); break;
        default: thrift_skip(t, &f);
        }
    }
}

static void read_dictionary_header(struct thrift *t, struct page_header *h)
{
    struct thrift_field f = {0};
    h->has_values = true;
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->values = thrift_int(t, &f); break;
        case 2: h->encoding = thrift_int(t, &f); break;
        default: thrift_skip(t, &f);
        }
    }
}

static void read_data_header_2(struct thrift *t, struct page_header *h)
{
    struct thrift_field f = {0};
    h->has_values = h->is_packed = true;
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: h->values = thrift_int(t, &f); break;
        case 4: h->encoding = thrift_int(t, &f); break;
        case 5: h->def_bytes = thrift_int(t, &f); break;
        case 6: h->rep_bytes = thrift_int(t, &f); break;
        case 7: h->is_packed = thrift_bool(t, &f); break;
        default: thrift_skip(t, &f);
        }
    }
}

/* The parts of other types of pages are passed over. */
static void column_read_header(struct thrift *t, struct page_header *h)
{
    struct thrift_field f = {0};
    *h = (struct page_header){.type = -1, .def_encoding = E_RLE, .rep_encoding = E_RLE};
    while (thrift_next(t, &f)) {
        if (f.id == 1)
            h->type = thrift_int(t, &f);
        else if (f.id == 2)
            h->size = thrift_int(t, &f);
        else if (f.id == 3)
            h->packed_size = thrift_int(t, &f);
        else if (f.id == 4) {
            h->crc = thrift_int(t, &f);
            h->has_crc = true;
        } else if ((f.id == 5 && h->type == PAGE_DATA) || (f.id == 7 && h->type == PAGE_DICTIONARY) ||
                   (f.id == 8 && h->type == PAGE_DATA_2)) {
            thrift_enter(t, &f);
            if (f.id == 5)
                read_data_header(t, h);
            else if (f.id == 7)
                read_dictionary_header(t, h);
            else
                read_data_header_2(t, h);
        } else
            thrift_skip(t, &f);
    }
}

/* How many bytes from here on were read before. */
static int64_t at_hand(const struct parquet *p, int64_t at)
{
    return at < p->packed_at ? 0 : max(p->packed_at + p->packed.size - at, 0);
}

/* These bytes of the file, which stay until the next call. */
static enum status column_take_bytes(struct parquet *p, int64_t at, int64_t count, const uint8_t **bytes)
{
    if (count > at_hand(p, at)) {
        TRY(parquet_hold(p, &p->packed, count));
        p->packed_at = at;
        enum status status = reader_read_at(&p->reader, at, p->packed.data, count);
        if (status != OK) {
            p->packed.size = 0;
            return status;
        }
    }
    *bytes = p->packed.data + (at - p->packed_at);
    return OK;
}

/* Headers have no length before them: what is read grows until one is whole. It begins with what is at hand, as a file of small
 * pages would take a call for each of them. */
static enum status column_take_header(struct parquet *p, struct leaf *leaf, struct page_header *h)
{
    int64_t near = min(at_hand(p, leaf->position), HEADER_DEFAULT);
    for (int64_t size = near ? near : HEADER_DEFAULT;; size = max(size * 8, HEADER_DEFAULT)) {
        int64_t count = min(min(size, HEADER_MAX), leaf->end - leaf->position);
        const uint8_t *bytes;
        TRY(column_take_bytes(p, leaf->position, count, &bytes));
        struct thrift t = {.at = bytes, .end = bytes + count};
        column_read_header(&t, h);
        if (!t.broken) {
            leaf->position += t.at - bytes;
            return parquet_spend(p, t.at - bytes);
        }
        if (!t.ended || count < size || size >= HEADER_MAX)
            return parquet_broken(p, leaf, "the header of a page is broken");
    }
}

/* The page's bytes, decompressed, into a block. In version 2 the levels before the values are never packed. */
static enum status take_page(struct parquet *p, struct leaf *leaf, const struct page_header *h, struct block *into)
{
    int64_t plain = h->type == PAGE_DATA_2 ? h->def_bytes + h->rep_bytes : 0;
    if (h->size < 0 || h->size > INT32_MAX || h->packed_size < 0 || h->packed_size > leaf->end - leaf->position)
        return parquet_broken(p, leaf, "a page ends outside of its column");
    if (h->def_bytes < 0 || h->rep_bytes < 0 || h->def_bytes > INT32_MAX || h->rep_bytes > INT32_MAX || plain > h->size ||
        plain > h->packed_size)
        return parquet_broken(p, leaf, "the levels of a page end outside of it");
    TRY(parquet_spend(p, h->packed_size + h->size));
    const uint8_t *packed;
    TRY(parquet_hold(p, into, h->size));
    TRY(column_take_bytes(p, leaf->position, h->packed_size, &packed));
    leaf->position += h->packed_size;
    if (h->has_crc && codec_crc32(packed, h->packed_size) != (uint32_t)h->crc)
        return parquet_broken(p, leaf, "the checksum of a page does not fit");
    if (plain)
        memcpy(into->data, packed, (size_t)plain);
    if (h->size == plain)
        return OK;
    enum codec codec = h->type == PAGE_DATA_2 && !h->is_packed ? CODEC_NONE : leaf->codec;
    enum status status = codec_decompress(codec, packed + plain, h->packed_size - plain, into->data + plain, h->size - plain);
    if (status == ERR_FORMAT)
        return fail_at(status, "%s: column \"%s\", after row %lld: ", p->path, leaf->column, (long long)p->row);
    return status == OK ? OK : fail_at(status, "%s: ", p->path);
}

static int column_value_bytes(enum physical type)
{
    return type == P_INT32 || type == P_FLOAT ? 4 : type == P_INT64 || type == P_DOUBLE ? 8 : 0;
}

static uint32_t little(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Where the strings of a dictionary begin. */
static enum status find_strings(struct parquet *p, struct leaf *leaf, int64_t count)
{
    const uint8_t *start = leaf->dictionary.data, *at = start, *end = at + leaf->dictionary.size;
    TRY(parquet_hold(p, &leaf->offsets, count * 4));
    for (int64_t i = 0; i < count; i++) {
        int32_t offset = (int32_t)(at - start);
        if (end - at < 4 || little(at) > end - at - 4)
            return parquet_broken(p, leaf, "a value ends outside of the dictionary");
        memcpy(leaf->offsets.data + 4 * i, &offset, 4);
        at += 4 + little(at);
    }
    return OK;
}

static enum status take_dictionary(struct parquet *p, struct leaf *leaf, const struct page_header *h)
{
    if (h->encoding != E_PLAIN && h->encoding != E_PLAIN_DICTIONARY)
        return refuse_encoding(p, leaf, h->encoding);
    TRY(take_page(p, leaf, h, &leaf->dictionary));
    int64_t min_bytes = leaf->type == P_BYTE_ARRAY ? 4 : column_value_bytes(leaf->type);
    if (!min_bytes || h->values < 0 || h->values > leaf->dictionary.size / min_bytes)
        return parquet_broken(p, leaf, "the dictionary has fewer values than its header says");
    leaf->dictionary_count = h->values;
    return leaf->type == P_BYTE_ARRAY ? find_strings(p, leaf, h->values) : OK;
}

static int level_width(int level)
{
    int width = 0;
    for (; level; level >>= 1)
        width++;
    return width;
}

/* In version 1 levels have their length before them. */
static enum status take_levels(struct parquet *p, struct leaf *leaf, struct hybrid *levels, int highest, int64_t encoding,
                               int64_t bytes, bool prefixed)
{
    if (!highest && prefixed)
        return OK;
    if (prefixed) {
        if (encoding != E_RLE)
            return refuse_encoding(p, leaf, encoding);
        if (leaf->stop - leaf->at < 4)
            return parquet_broken(p, leaf, "a page ends before its levels");
        bytes = little(leaf->at);
        leaf->at += 4;
    }
    if (bytes > leaf->stop - leaf->at)
        return parquet_broken(p, leaf, "the levels of a page end outside of it");
    hybrid_open(levels, leaf->at, leaf->at + bytes, level_width(highest));
    leaf->at += bytes;
    return OK;
}

static enum status take_values(struct parquet *p, struct leaf *leaf)
{
    bool dictionary = leaf->encoding == E_PLAIN_DICTIONARY || leaf->encoding == E_RLE_DICTIONARY;
    leaf->bit = 0;
    if (leaf->encoding == E_PLAIN)
        return OK;
    if (leaf->encoding == E_RLE && leaf->type == P_BOOLEAN) {
        int64_t room = leaf->stop - leaf->at - 4; /* below 0 in a page of only nulls */
        if (room >= 0 && little(leaf->at) > room)
            return parquet_broken(p, leaf, "the booleans of a page end outside of it");
        leaf->at += room < 0 ? 0 : 4;
        hybrid_open(&leaf->indices, leaf->at, room < 0 ? leaf->at : leaf->at + little(leaf->at - 4), 1);
        return OK;
    }
    if (!dictionary)
        return refuse_encoding(p, leaf, leaf->encoding);
    int width = leaf->at < leaf->stop ? *leaf->at++ : 0; /* a page of only nulls may have none */
    if (width > 32)
        return parquet_broken(p, leaf, "the indices of a page have more than 32 bits");
    hybrid_open(&leaf->indices, leaf->at, leaf->stop, width);
    return OK;
}

static enum status take_data(struct parquet *p, struct leaf *leaf, const struct page_header *h)
{
    bool first = h->type == PAGE_DATA;
    if (h->values < 0 || h->values > leaf->entries)
        return parquet_broken(p, leaf, "its pages have more values than its header says");
    TRY(take_page(p, leaf, h, &leaf->page));
    leaf->at = leaf->page.data;
    leaf->stop = leaf->at + leaf->page.size;
    leaf->left = h->values;
    leaf->entries -= h->values;
    leaf->encoding = h->encoding;
    TRY(take_levels(p, leaf, &leaf->reps, leaf->rep, h->rep_encoding, h->rep_bytes, first));
    TRY(take_levels(p, leaf, &leaf->defs, leaf->def, h->def_encoding, h->def_bytes, first));
    return take_values(p, leaf);
}

/* The next page that has entries. */
static enum status next_page(struct parquet *p, struct leaf *leaf)
{
    while (!leaf->left) {
        struct page_header h;
        if (!leaf->entries || leaf->position >= leaf->end)
            return parquet_broken(p, leaf, "it has fewer values than there are rows");
        TRY(column_take_header(p, leaf, &h));
        if (h.type == PAGE_INDEX) {
            if (h.packed_size < 0 || h.packed_size > leaf->end - leaf->position)
                return parquet_broken(p, leaf, "a page ends outside of its column");
            leaf->position += h.packed_size;
            continue;
        }
        if (h.type != PAGE_DATA && h.type != PAGE_DICTIONARY && h.type != PAGE_DATA_2)
            return parquet_refuse(p, leaf, "has a page", "of a type that is not known");
        if (!h.has_values)
            return parquet_broken(p, leaf, "the header of a page lacks a part");
        TRY(h.type == PAGE_DICTIONARY ? take_dictionary(p, leaf, &h) : take_data(p, leaf, &h));
    }
    return OK;
}

/* --- entries ------------------------------------------------------------------------------------------------------------ */

enum status column_peek(struct parquet *p, struct leaf *leaf)
{
    uint32_t rep = 0, def = 0;
    if (leaf->peeked)
        return OK;
    if (!leaf->left)
        TRY(next_page(p, leaf));
    leaf->left--;
    if ((leaf->rep && !hybrid_next(&leaf->reps, &rep)) || (leaf->def && !hybrid_next(&leaf->defs, &def)))
        return parquet_broken(p, leaf, "the levels of a page end too soon");
    if (rep > (uint32_t)leaf->rep || def > (uint32_t)leaf->def)
        return parquet_broken(p, leaf, "a level is higher than the schema allows");
    leaf->peek_rep = (int)rep;
    leaf->peek_def = (int)def;
    leaf->peeked = true;
    return OK;
}

static enum status plain_value(struct parquet *p, struct leaf *leaf, const uint8_t **bytes, int64_t *count)
{
    static const uint8_t booleans[] = {0, 1};
    int64_t left = leaf->stop - leaf->at, size = column_value_bytes(leaf->type);
    if (leaf->type == P_BOOLEAN) {
        if (leaf->bit >= left * 8)
            return parquet_broken(p, leaf, "a page ends before its values");
        *bytes = &booleans[leaf->at[leaf->bit / 8] >> leaf->bit % 8 & 1];
        leaf->bit++;
        return OK;
    }
    if (leaf->type == P_BYTE_ARRAY) {
        size = left >= 4 ? (int64_t)little(leaf->at) : 0;
        leaf->at += min(left, 4);
        left -= 4;
    }
    if (left < size)
        return parquet_broken(p, leaf, "a page ends before its values");
    *bytes = leaf->at;
    *count = size;
    leaf->at += size;
    return OK;
}

static enum status dictionary_value(struct parquet *p, struct leaf *leaf, const uint8_t **bytes, int64_t *count)
{
    uint32_t index;
    int32_t offset;
    if (!hybrid_next(&leaf->indices, &index))
        return parquet_broken(p, leaf, "a page ends before its values");
    if (index >= leaf->dictionary_count)
        return parquet_broken(p, leaf, "a value is not in the dictionary");
    if (leaf->type != P_BYTE_ARRAY) {
        *count = column_value_bytes(leaf->type);
        *bytes = leaf->dictionary.data + index * *count;
        return OK;
    }
    memcpy(&offset, leaf->offsets.data + 4 * (int64_t)index, 4);
    *bytes = leaf->dictionary.data + offset + 4;
    *count = little(*bytes - 4);
    return OK;
}

enum status column_value(struct parquet *p, struct leaf *leaf, const uint8_t **bytes, int64_t *count)
{
    static const uint8_t booleans[] = {0, 1};
    uint32_t value;
    *count = 1;
    if (leaf->encoding == E_PLAIN)
        return plain_value(p, leaf, bytes, count);
    if (leaf->encoding != E_RLE)
        return dictionary_value(p, leaf, bytes, count);
    if (!hybrid_next(&leaf->indices, &value))
        return parquet_broken(p, leaf, "a page ends before its values");
    *bytes = &booleans[value & 1];
    return OK;
}
