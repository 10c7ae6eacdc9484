/* All columns of a Parquet file as rows of JSON, for the test that compares them with pyarrow.
 *
 *     parquet FILE     a line each, or {"error", "code"}
 */
#include <stdio.h>

#include "base/json.h"
#include "format/parquet/parquet.h"

static enum status print_rows(struct parquet *p, struct buffer *text)
{
    bool more = true;
    for (int i = 0; i < parquet_columns(p); i++)
        TRY(parquet_choose(p, i, parquet_column(p, i)));
    while (more) {
        text->size = 0;
        TRY(parquet_next(p, text, &more));
        if (more)
            fwrite(text->data, 1, (size_t)text->size, stdout);
    }
    return OK;
}

int main(int argc, char **argv)
{
    struct parquet *p;
    struct buffer text = {0};
    if (argc != 2)
        return 2;
    enum status status = parquet_open(&p, argv[1]);
    if (status == OK)
        status = print_rows(p, &text);
    if (status != OK) {
        json_t *error = json_pack("{s:s, s:i}", "error", status_message(), "code", (int)status);
        json_dumpf(error, stdout, JSON_COMPACT);
        json_decref(error);
    }
    parquet_close(p);
    buffer_free(&text);
    return status != OK;
}
