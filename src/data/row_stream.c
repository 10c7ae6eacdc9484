/* Finding out what a file is, and reading it as text. */
#include "data/row_stream.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/decompress.h"
#include "base/file.h"
#include "base/name.h"
#include "base/number.h"
#include "base/path_hint.h"
#include "data/csv.h"
#include "format/parquet/parquet.h"

enum { OPENING = 4096, TEXT_DEFAULT = 64 * 1024 };

struct stream {
    enum stream_form form;
    struct decompress *file; /* NULL: Parquet */
    struct csv *csv;
    struct parquet *parquet;
    int64_t bytes;      /* of the file */
    const char **keys;  /* of the table's columns */
    struct buffer text; /* [begin, size) was made and not yet handed out */
    int64_t begin;
    bool last; /* nothing follows it */
};

/* --- what a file is ----------------------------------------------------------------------------------------------------- */

/* The first bytes of other files that a user may pass to --data. */
static enum status check_opening(const char *path, const char *text, int64_t length)
{
    static const struct {
        const char *bytes;
        int64_t count;
        const char *says;
    } known[] = {
        {"PAR1", 4, "a Parquet file inside of gzip or zstd; unpack it"},
        {"ARROW1", 6,
         "an Arrow file, which hone does not read; convert it: python3 -c \"import datasets, sys; "
         "datasets.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])\" IN.arrow OUT.jsonl"},
        {"\xff\xff\xff\xff", 4,
         "an Arrow stream, which hone does not read; convert it: python3 -c \"import datasets, sys; "
         "datasets.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])\" IN.arrow OUT.jsonl"},
        {"\xff\xfe", 2, "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
        {"\xfe\xff", 2, "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
        {"PK\3\4", 4, "a zip archive; unpack it (a .docx or .xlsx file is one too: save it as text or CSV instead)"},
        {"BZh", 3, "packed by bzip2; unpack it, or pack it by gzip or zstd"},
        {"\xfd"
         "7zXZ",
         5, "packed by xz; unpack it, or pack it by gzip or zstd"},
        {"\x28\xb5\x2f\xfd", 4, "packed twice; unpack it once"},
        {"\x1f\x8b", 2, "packed twice; unpack it once"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (length >= known[i].count && memcmp(text, known[i].bytes, (size_t)known[i].count) == 0)
            return fail(ERR_UNSUPPORTED, "%s: %s", path, known[i].says);
    return path_hint_content(path, text, length, "rows of JSON, as in {\"text\": \"...\"}, CSV or Parquet");
}

/* Whether a name ends so, in capitals or not. */
static bool ends_like(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    for (size_t i = 0; n >= m && i < m; i++)
        if (tolower((unsigned char)path[n - m + i]) != ending[i])
            return false;
    return n >= m;
}

static bool is_called(const char *path, const char *ending)
{
    char packed[2][16];
    snprintf(packed[0], sizeof packed[0], "%s.gz", ending);
    snprintf(packed[1], sizeof packed[1], "%s.zst", ending);
    return ends_like(path, ending) || ends_like(path, packed[0]) || ends_like(path, packed[1]);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static enum status open_parquet(struct stream *s, const char *path, const struct columns *columns)
{
    struct arena arena = {0};
    TRY(parquet_open(&s->parquet, path));
    int count = parquet_columns(s->parquet);
    const char **names = arena_array(&arena, 2 * (int64_t)count, (int64_t)sizeof *names), **keys = names ? names + count : NULL;
    enum status status = names ? OK : ERR_MEMORY;
    for (int i = 0; i < count && names; i++)
        names[i] = parquet_column(s->parquet, i);
    if (status == OK)
        status = columns_choose(columns, path, names, count, keys);
    for (int i = 0; i < count && status == OK; i++)
        if (keys[i])
            status = parquet_choose(s->parquet, i, keys[i]);
    arena_free(&arena);
    return status;
}

static enum status row_stream_open_csv(struct stream *s, const char *path, const struct columns *columns)
{
    TRY(csv_open(&s->csv, s->file, path, &s->text, s->form == STREAM_TSV ? '\t' : 0));
    s->text.size = 0;
    s->last = false;
    s->keys = memory_alloc(csv_columns(s->csv) * (int64_t)sizeof *s->keys);
    if (!s->keys)
        return ERR_MEMORY;
    TRY(columns_choose(columns, path, csv_names(s->csv), csv_columns(s->csv), s->keys));
    csv_choose(s->csv, s->keys);
    return OK;
}

static enum status open_stream(struct stream *s, const char *path, const struct columns *columns)
{
    int64_t got;
    TRY(file_check_holes(path));
    TRY(decompress_open(&s->file, path));
    TRY(buffer_reserve(&s->text, OPENING));
    TRY(decompress_read(s->file, s->text.data, OPENING, &got));
    s->text.size = got;
    s->last = got < OPENING;
    if (parquet_begins(s->text.data, got) && !decompress_packed(s->file)) {
        decompress_close(s->file);
        s->file = NULL;
        s->form = STREAM_PARQUET;
        s->text.size = 0;
        s->last = false;
        return open_parquet(s, path, columns);
    }
    TRY(check_opening(path, s->text.data, got));
    if (name_ends_with(path, ".parquet"))
        return fail(ERR_FORMAT, "%s: it does not begin as Parquet files do; download it again", path);
    s->form = is_called(path, ".csv") ? STREAM_CSV : is_called(path, ".tsv") ? STREAM_TSV : STREAM_JSON;
    return s->form == STREAM_JSON ? OK : row_stream_open_csv(s, path, columns);
}

enum status stream_open(struct stream **out, const char *path, const struct columns *columns)
{
    *out = NULL;
    struct stream *s = memory_alloc((int64_t)sizeof *s);
    if (!s)
        return ERR_MEMORY;
    s->bytes = file_size(path);
    enum status status = open_stream(s, path, columns);
    if (status == OK)
        *out = s;
    else
        stream_close(s);
    return status;
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    csv_close(s->csv);
    parquet_close(s->parquet);
    decompress_close(s->file);
    memory_free(s->keys);
    buffer_free(&s->text);
    memory_free(s);
}

enum stream_form stream_form(const struct stream *s)
{
    return s->form;
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

/* More of a table's text: some rows, or one that is large. */
static enum status make_text(struct stream *s)
{
    bool more = true;
    s->begin = s->text.size = 0;
    while (more && s->text.size < TEXT_DEFAULT)
        TRY(s->csv ? csv_next(s->csv, &s->text, &more) : parquet_next(s->parquet, &s->text, &more));
    s->last = !more;
    return OK;
}

enum status stream_read(struct stream *s, void *bytes, int64_t max_bytes, int64_t *got)
{
    *got = 0;
    for (;;) {
        int64_t n = min(s->text.size - s->begin, max_bytes - *got);
        if (n)
            memcpy((char *)bytes + *got, s->text.data + s->begin, (size_t)n);
        s->begin += n;
        *got += n;
        if (*got == max_bytes || s->last)
            return OK;
        if (s->form == STREAM_JSON) {
            TRY(decompress_read(s->file, (char *)bytes + *got, max_bytes - *got, &n));
            *got += n;
            return OK;
        }
        TRY(make_text(s));
    }
}

bool stream_packed(const struct stream *s)
{
    return s->file && decompress_packed(s->file);
}

int64_t stream_taken(const struct stream *s)
{
    return s->file ? decompress_taken(s->file) : s->bytes;
}

enum status stream_digest(const struct stream *s, struct digest *digest)
{
    if (s->parquet)
        return parquet_digest(s->parquet, digest);
    *digest = decompress_digest(s->file);
    return OK;
}
