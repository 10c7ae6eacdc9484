/* The input is the cache of the tokens of three chats: a byte of flags, the sizes of log, rows and tokens in two bytes each, and
 * these files; what follows is the list of skipped rows. Keys and hashes are made right unless a flag says not to, so
 * that what contradicts itself under a right hash is reached.
 *
 * Whatever a cache holds, the data has the rows of its text or those of a cache without contradictions. */
#include "model.h"

#include <sys/stat.h>

#include "data/data.h"
#include "data/token_log.h"

enum { RAW = 1, PART = 2 }; /* flags: hashes as they are; the files of a run that was interrupted */
enum { ROWS = 3, RECORD = 16 * 5 + sizeof(struct token_totals) + 8, FILES = 4 };

static struct chat *chat;
static struct data_limits limits;
static char chats[256], cache[256], dir[256];
static struct digest key;

static void close_chat(void)
{
    chat_close(chat);
}

static void open_cache(void)
{
    struct data data;
    snprintf(chats, sizeof chats, "%s/chats.jsonl", fuzz_model());
    snprintf(cache, sizeof cache, "%s", fuzz_path("cache"));
    limits = (struct data_limits){
        .max_tokens = 512, .vocabulary = TINY_VOCABULARY, .model_dir = model.dir, .cache_dir = cache, .skip_bad = true};
    PROMISE(data_open(&data, chats, &chat, &limits) == OK && data.row_count == ROWS);
    PROMISE(snprintf(dir, sizeof dir, "%s", data.cache.path) < (int)sizeof dir);
    key = data.cache.key;
    data_close(&data);
    atexit(close_chat);
}

/* The hash of entries [from, to) of a file, or of nothing if it does not have them. */
static struct digest hash_range(const struct fuzz_part *file, int64_t from, int64_t to, int64_t size)
{
    bool there = from >= 0 && to >= from && to <= (int64_t)file->size / size;
    return there ? hash_of(file->data + from * size, (to - from) * size) : hash_of("", 0);
}

/* Gives each record of the log its key and its hashes: of rows, tokens, skipped rows, and of itself. */
static void repair_log(uint8_t *log, size_t size, const struct fuzz_part file[FILES])
{
    struct token_totals before = {0}, after;
    for (uint8_t *record = log; record + RECORD <= log + size; record += RECORD, before = after) {
        memcpy(&after, record + 16, sizeof after);
        struct digest hashes[] = {
            hash_range(&file[1], before.rows, after.rows, (int64_t)sizeof(struct token_row)),
            hash_range(&file[2], before.tokens, after.tokens, (int64_t)sizeof(int32_t)),
            hash_range(&file[3], before.skipped_bytes, after.skipped_bytes, 1),
        };
        memcpy(record, &key, sizeof key);
        memcpy(record + RECORD - sizeof(struct digest) - sizeof hashes, hashes, sizeof hashes);
        struct digest check = hash_of(record, RECORD - (int64_t)sizeof check);
        memcpy(record + RECORD - sizeof check, &check, sizeof check);
    }
}

/* Gives each row the checksum of its tokens. */
static void repair_rows(uint8_t *rows, size_t size, const struct fuzz_part *tokens)
{
    int64_t count = (int64_t)(tokens->size / sizeof(int32_t));
    static int32_t ids[1 << 14];
    PROMISE(tokens->size <= sizeof ids);
    if (count)
        memcpy(ids, tokens->data, (size_t)count * sizeof *ids);
    for (; size >= sizeof(struct token_row); rows += sizeof(struct token_row), size -= sizeof(struct token_row)) {
        struct token_row row;
        memcpy(&row, rows, sizeof row);
        if (row.begin >= 0 && row.begin <= count && row.count >= 0 && row.count <= count - row.begin)
            row.check = token_row_check(ids + row.begin, row.count);
        memcpy(rows, &row, sizeof row);
    }
}

static ino_t tokens_file(const char *folder)
{
    struct stat entry;
    char path[512];
    snprintf(path, sizeof path, "%s/tokens", folder);
    PROMISE(stat(path, &entry) == 0);
    return entry.st_ino;
}

/* Returns its file of tokens: if the cache has it afterwards too, this one was taken. */
static ino_t put_files(int flags, struct fuzz_part file[FILES])
{
    static const char *const names[FILES] = {"log", "rows", "tokens", "skipped"};
    static uint8_t log[1 << 16], rows[1 << 16];
    char path[512], part[300];
    snprintf(part, sizeof part, "%s.part", dir);
    const char *folder = flags & PART ? part : dir;
    PROMISE(directory_remove(dir) == OK && directory_remove(part) == OK && directory_make(folder) == OK);
    PROMISE(file[0].size <= sizeof log && file[1].size <= sizeof rows);
    if (file[0].size)
        memcpy(log, file[0].data, file[0].size);
    if (file[1].size)
        memcpy(rows, file[1].data, file[1].size);
    if (!(flags & RAW)) {
        repair_rows(rows, file[1].size, &file[2]);
        file[1].data = rows;
        repair_log(log, file[0].size, file);
    }
    file[0].data = log;
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        PROMISE(file_replace(path, file[i].data, (int64_t)file[i].size) == OK);
    }
    return tokens_file(folder);
}

static void check(struct data *data)
{
    int64_t tokens = 0, trained = 0;
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct token_row *row = &data->rows[r];
        PROMISE(row->begin == tokens && row->count >= 0 && *data_file_of(data, r));
        if (data_use(data, r) != OK)
            PROMISE(strstr(status_message(), "damaged") != NULL);
        tokens += row->count;
        trained += row->trained;
    }
    PROMISE(tokens == data->tokens && trained == data->trained);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    if (!*dir)
        open_cache();
    struct fuzz_part file[FILES], rest = {data + (size >= 7 ? 7 : size), size >= 7 ? size - 7 : 0};
    for (int i = 0; i < FILES; i++) {
        size_t want = size >= 7 && i < FILES - 1 ? data[1 + 2 * i] + 256U * data[2 + 2 * i] : rest.size;
        file[i] = (struct fuzz_part){rest.data, want < rest.size ? want : rest.size};
        rest = (struct fuzz_part){rest.data + file[i].size, rest.size - file[i].size};
    }
    ino_t put = put_files(size ? data[0] : 0, file);
    struct data open;
    enum status status = data_open(&open, chats, &chat, &limits);
    PROMISE(status == OK || status == ERR_DATA);
    if (status == OK) {
        if (tokens_file(dir) == put)
            fuzz_accept();
        check(&open);
        data_close(&open);
    }
}
