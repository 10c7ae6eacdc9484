/* GGUF's blocks to float32, for comparison with the gguf package.
 *
 *     blocks DEVICE COLUMNS FOLDER TYPE …        reads FOLDER/TYPE.blocks, rows of COLUMNS elements; writes FOLDER/TYPE.numbers
 *
 * "host" is no device: the function that gives a weight's numbers to the program itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ops/ops.h"
#include "ops/weights/weight.h"
#include "tensor/engine.h"

static enum status expand_on(const char *name, enum weight_id type, const struct file_map *from, int64_t rows, int64_t columns,
                             float *to)
{
    struct device *device;
    struct store store;
    struct program p;
    struct engine e;
    int64_t index;
    TRY(device_open(&device, name));
    TRY(store_init(&store));
    program_init(&p, ops_table, RUN_FLOAT32);
    struct value *w = example_weight(&p, 1 + (int64_t)type, rows, columns);
    struct value *y = program_output(&p, expand(&p, w, 0, rows), "y");
    TRY(program_status(&p));
    engine_init(&e, device, &store);
    TRY(engine_add(&e, &p, &index));
    TRY(engine_place(&e));
    TRY(engine_prepare(&e));
    memcpy(engine_input(&e, w->weight->part[0]), from->data, (size_t)from->size);
    TRY(engine_run(&e, index));
    TRY(engine_read(&e, y, to));
    engine_free(&e);
    program_free(&p);
    store_free(&store);
    device_close(device);
    return OK;
}

static enum status convert(const char *device, enum weight_id type, int64_t columns, const char *folder)
{
    struct file_map map;
    struct arena arena = {0};
    const struct weight_type *of = weight_types[type];
    char name[64];
    snprintf(name, sizeof name, "%s.blocks", of->name);
    TRY(file_map(&map, file_join(&arena, folder, name)));
    int64_t elements = map.size / of->part[0].bytes * of->part[0].elements;
    float *numbers = memory_alloc(elements * 4);
    if (strcmp(device, "host") != 0)
        TRY(expand_on(device, type, &map, elements / columns, columns, numbers));
    else
        of->expand((const void *const[]){map.data}, 1, elements, numbers);
    snprintf(name, sizeof name, "%s.numbers", of->name);
    FILE *out = fopen(file_join(&arena, folder, name), "wb");
    bool whole = out && (int64_t)fwrite(numbers, 4, (size_t)elements, out) == elements;
    whole = out && fclose(out) == 0 && whole;
    memory_free(numbers);
    file_unmap(&map);
    arena_free(&arena);
    return whole ? OK : fail(ERR_IO, "%s/%s: cannot write", folder, name);
}

static enum status run(int argc, char **argv)
{
    for (int i = 4; i < argc; i++)
        for (int type = 0; type < WEIGHT_COUNT; type++)
            if (!strcmp(argv[i], weight_types[type]->name))
                TRY(convert(argv[1], (enum weight_id)type, atoll(argv[2]), argv[3]));
    return OK;
}

int main(int argc, char **argv)
{
    enum status status = run(argc, argv);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
