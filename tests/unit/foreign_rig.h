/* Configurations of other tools, loaded into fresh options: for the tests of them. */
#ifndef TESTS_UNIT_FOREIGN_RIG_H
#define TESTS_UNIT_FOREIGN_RIG_H

#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "config/foreign/state.h"
#include "config/option_table.h"

static struct arena arena;
static struct options options;
static char dir[64], path[96];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-foreign-%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    return directory_make(dir) != OK;
}

static int remove_dir(void **state)
{
    (void)state;
    arena_free(&arena);
    return directory_remove(dir) != OK;
}

static void put(const char *name, const char *text)
{
    char file[160];
    snprintf(file, sizeof file, "%s/%s", dir, name);
    assert_ok(file_replace(file, text, (int64_t)strlen(text)));
}

static void fresh(void)
{
    arena_free(&arena);
    options_init(&options, &arena);
}

/* Loads a configuration into fresh options. */
static enum status load(const char *text)
{
    fresh();
    put("config.yaml", text);
    return options_load_yaml(&options, COMMAND_TRAIN, path);
}

#define AXOLOTL_FEW "base_model: m\ndatasets: [{path: a.jsonl}]\nmicro_batch_size: 2\nlearning_rate: 1e-4\n"
#define FACTORY_FEW "model_name_or_path: m\nstage: sft\noutput_dir: o\ncutoff_len: 64\n"
#define TRL_FEW "model_name_or_path: m\ndataset_name: a.jsonl\nuse_peft: true\n"
#define MLX_FEW "model: m\ndata: d\niters: 100\nnum_layers: -1\n"

#endif
