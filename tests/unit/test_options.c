/* config: options from defaults, the command line and YAML files, and the text made from the table. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "config/options.h"
#include "failing.h"

static struct arena arena;
static struct options options;
static struct arguments arguments;

static int fresh(void **state)
{
    (void)state;
    arena_free(&arena);
    options_init(&options, &arena);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* Parses words that end with NULL, into fresh options. */
static enum status parse_words(enum user_command command, char **words)
{
    int n = 0;
    while (words[n])
        n++;
    fresh(NULL);
    return options_parse(&options, command, n, words, &arguments);
}

#define parse(command, ...) parse_words(COMMAND_##command, (char *[]){__VA_ARGS__, NULL})

/* A YAML file with this text; the name is the same each time. */
static const char *yaml(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/hone-options-%ld.yaml", (long)getpid());
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return path;
}

static enum status load(enum user_command command, const char *text)
{
    fresh(NULL);
    const char *path = yaml(text);
    enum status status = options_load_yaml(&options, command, path);
    unlink(path);
    return status;
}

static void defaults_are_those_of_the_table(void **state)
{
    (void)state;
    assert_null(options.model_name_or_path);
    assert_int_equal(options.dtype, CHOICE_dtype_auto);
    assert_string_equal(options.device, "auto");
    assert_int_equal(options.max_new_tokens, 256);
    assert_int_equal(options.seed, 42);
    assert_true(options.learning_rate == 2e-4 && options.adam_epsilon == 1e-8);
    assert_int_equal(options.finetuning_type, CHOICE_finetuning_type_lora);
    assert_int_equal(options.run_kind, CHOICE_run_kind_train);
    assert_true(options.shuffle && options.eval_on_start);
    assert_true(options.temperature == 0 && options.top_p == 1);
    assert_false(options.json);
    for (int i = 0; i < OPTIONS; i++)
        assert_null(options.source[i]);
}

static void flags_have_every_usual_form(void **state)
{
    (void)state;
    assert_ok(
        parse(GENERATE, "--model", "dir", "--max_new_tokens", "7", "--temperature=0.5", "--top-p", "9e-1", "--prompt=--x=y"));
    assert_string_equal(options.model_name_or_path, "dir");
    assert_string_equal(options.source[OPTION_model_name_or_path], "--model");
    assert_int_equal(options.max_new_tokens, 7);
    assert_true(options.temperature == 0.5 && options.top_p == 0.9);
    assert_string_equal(options.prompt, "--x=y");
    assert_string_equal(options.source[OPTION_prompt], "--prompt");
    assert_null(options.source[OPTION_seed]);

    assert_ok(parse(GENERATE, "--max-new-tokens=+8", "--model-name_or-path", "a", "--system", "", "--prompt", "-1",
                    "--max-new-tokens", "9"));
    assert_int_equal(options.max_new_tokens, 9);
    assert_string_equal(options.model_name_or_path, "a");
    assert_string_equal(options.system, "");
    assert_string_equal(options.prompt, "-1");
}

static void booleans_stand_alone_or_take_a_word(void **state)
{
    (void)state;
    assert_ok(parse(EVAL, "--json"));
    assert_true(options.json);
    assert_ok(parse(EVAL, "--json", "false", "--train-on-inputs", "True"));
    assert_false(options.json);
    assert_true(options.train_on_inputs);
    assert_ok(parse(EVAL, "--json=true", "--train_on_inputs=FALSE"));
    assert_true(options.json);
    assert_false(options.train_on_inputs);
    assert_ok(parse(EVAL, "--json", "file"));
    assert_true(options.json);
    assert_int_equal(arguments.count, 1);
    assert_fails(parse(EVAL, "--json=maybe"), ERR_ARGUMENT, "--json cannot be 'maybe': it takes true or false");
    assert_fails(parse(EVAL, "--json="), ERR_ARGUMENT, "it takes true or false");
}

static void arguments_stand_between_options(void **state)
{
    (void)state;
    assert_ok(parse(INSPECT, "model", "--json", "dir", "-", "--", "--model", "--"));
    assert_int_equal(arguments.count, 5);
    assert_string_equal(arguments.text[0], "model");
    assert_string_equal(arguments.text[1], "dir");
    assert_string_equal(arguments.text[2], "-");
    assert_string_equal(arguments.text[3], "--model");
    assert_string_equal(arguments.text[4], "--");
    assert_null(options.model_name_or_path);
    assert_ok(parse(DEVICES, NULL));
    assert_int_equal(arguments.count, 0);
}

static void help_needs_no_file(void **state)
{
    (void)state;
    assert_ok(parse(EVAL, "-h", "--config", "/nonexistent/x.yaml"));
    assert_true(options.help);
    assert_ok(parse(EVAL, "--help"));
    assert_true(options.help);
    assert_fails(parse(EVAL, "--h"), ERR_ARGUMENT, "unknown option '--h'");
    assert_fails(parse(EVAL, "-x"), ERR_ARGUMENT, "unknown option '-x'");
    assert_fails(parse(EVAL, "-model", "x"), ERR_ARGUMENT, "unknown option '-model': did you mean '--model'?");
}

static void unknown_flags_name_the_nearest(void **state)
{
    (void)state;
    assert_fails(parse(GENERATE, "--max_new_tokns", "3"), ERR_ARGUMENT,
                 "unknown option '--max_new_tokns': did you mean '--max-new-tokens'?");
    assert_fails(parse(GENERATE, "--modle=x"), ERR_ARGUMENT, "unknown option '--modle': did you mean '--model'?");
    assert_fails(parse(EVAL, "--zzzzzzzzzzzz"), ERR_ARGUMENT, "unknown option '--zzzzzzzzzzzz' (hone eval --help lists all)");
    assert_ok(parse(TRAIN, "--lr", "1"));
    assert_true(options.learning_rate == 1);
    assert_ok(parse(TRAIN, "--batch-size=4"));
    assert_int_equal(options.per_device_train_batch_size, 4);
    assert_fails(parse(EVAL, "--lr", "1"), ERR_ARGUMENT, "--lr is not an option of hone eval: it belongs to hone train");
    assert_fails(parse(EVAL, "--=3"), ERR_ARGUMENT, "unknown option '--'");
    assert_fails(parse(EVAL, "---json"), ERR_ARGUMENT, "did you mean '--json'?");
    char word[5000] = "--";
    memset(word + 2, 'a', sizeof word - 3);
    assert_fails(parse(EVAL, word), ERR_ARGUMENT, "unknown option '--aaa");
}

static void flags_of_other_commands_say_whose_they_are(void **state)
{
    (void)state;
    assert_fails(parse(GENERATE, "--data", "x"), ERR_ARGUMENT,
                 "--data is not an option of hone generate: it belongs to hone init, hone train, hone eval, hone plan");
    assert_fails(parse(DEVICES, "--micro-batch-tokens=3"), ERR_ARGUMENT, "it belongs to hone train, hone eval, hone plan");
    assert_fails(parse(TRAIN, "--for", "eval"), ERR_ARGUMENT, "--for is not an option of hone train: it belongs to hone plan");
    assert_fails(options_set(&options, COMMAND_DEVICES, "prompt", "x", "a test"), ERR_ARGUMENT,
                 "a test: prompt is not an option of hone devices");
}

static void missing_values_are_not_taken_from_the_next_flag(void **state)
{
    (void)state;
    assert_fails(parse(EVAL, "--model"), ERR_ARGUMENT, "--model needs a value: --model DIR");
    assert_fails(parse(GENERATE, "--prompt", "--raw"), ERR_ARGUMENT,
                 "--prompt needs a value before '--raw'; if that is the value, write --prompt=--raw");
}

static void bad_values_say_what_is_allowed(void **state)
{
    (void)state;
    assert_fails(parse(EVAL, "--dtype", "float64"), ERR_ARGUMENT,
                 "--dtype cannot be 'float64': it takes float32, bfloat16, float16 or auto");
    assert_fails(parse(EVAL, "--dtype", "float32|bfloat16"), ERR_ARGUMENT, "it takes float32, bfloat16, float16 or auto");
    assert_fails(parse(EVAL, "--dtype="), ERR_ARGUMENT, "--dtype cannot be ''");
    assert_fails(parse(EVAL, "--model", ""), ERR_ARGUMENT, "--model cannot be '': it takes a path");
    assert_fails(parse(EVAL, "--max-length", "-1"), ERR_ARGUMENT,
                 "--max-length cannot be '-1': it takes a whole number from 0 to 2147483647");
    static char *const not_whole[] = {"", "x", "1x", " 1", "1.0", "1e3", "0x10", "-", "9223372036854775808"};
    for (size_t i = 0; i < sizeof not_whole / sizeof *not_whole; i++)
        assert_fails(parse(EVAL, "--max-length", not_whole[i]), ERR_ARGUMENT, "it takes a whole number");
    assert_fails(parse(EVAL, "--threads", "1025"), ERR_ARGUMENT, "it takes a whole number from 0 to 1024");
    static char *const not_number[] = {"", "x", "0.5x", "nan", "inf", "1e999", "0x1p-1", "0,5", "e", "0", "-1", "1.0001"};
    for (size_t i = 0; i < sizeof not_number / sizeof *not_number; i++)
        assert_fails(parse(GENERATE, "--top-p", not_number[i]), ERR_ARGUMENT, "it takes a number above 0, up to 1");
    assert_fails(parse(GENERATE, "--temperature=-0.1"), ERR_ARGUMENT, "it takes a number of at least 0");
    static char *const not_below[] = {"-0.1", "1", "1.5", "1e0"};
    for (size_t i = 0; i < sizeof not_below / sizeof *not_below; i++)
        assert_fails(parse(TRAIN, "--lora-dropout", not_below[i]), ERR_ARGUMENT, "it takes a number from 0 to below 1");
    assert_ok(parse(TRAIN, "--lora-dropout=0", "--adam-beta1", "0.999999", "-r", "65536"));
    assert_int_equal(options.lora_r, 65536);
    assert_fails(parse(TRAIN, "--num-train-epochs", "0"), ERR_ARGUMENT,
                 "--num-train-epochs cannot be '0': it takes a number above 0");
    assert_ok(parse(TRAIN, "--num-train-epochs", "0.5"));
    assert_fails(parse(TRAIN, "--lora-r", "65537"), ERR_ARGUMENT, "it takes a whole number from 1 to 65536");
    assert_fails(parse(TRAIN, "--recompute", "some"), ERR_ARGUMENT, "it takes none, selective, full or auto");
    assert_ok(parse(GENERATE, "--seed", "9223372036854775807", "--top-p=1"));
    assert_int_equal(options.seed, INT64_MAX);
}

/* A device may have a number, which only device_open can check. */
static void devices_are_not_judged_here(void **state)
{
    (void)state;
    assert_ok(parse(EVAL, "--device", "cuda:1"));
    assert_string_equal(options.device, "cuda:1");
    struct buffer text = {0};
    assert_ok(options_help(COMMAND_EVAL, &text));
    assert_non_null(strstr(text.data, "opencl, cuda or auto; default auto)"));
    buffer_free(&text);
}

static void choices_are_numbers_and_words(void **state)
{
    (void)state;
    static const char *const words[] = {"float32", "bfloat16", "float16", "auto"};
    for (int i = 0; i < 4; i++) {
        struct buffer text = {0};
        assert_ok(parse(TRAIN, "--dtype", (char *)words[i]));
        assert_int_equal(options.dtype, i);
        assert_string_equal(options_word(OPTION_dtype, i), words[i]);
        assert_int_equal(options_choice(OPTION_dtype, words[i]), i);
        assert_ok(options_get(&options, OPTION_dtype, &text));
        assert_string_equal(text.data, words[i]);
        buffer_free(&text);
    }
    assert_int_equal(CHOICE_dtype_auto, 3);
    assert_int_equal(options_choice(OPTION_dtype, "float"), -1);
    assert_int_equal(options_choice(OPTION_dtype, ""), -1);
    assert_int_equal(options_choice(OPTION_seed, "1"), -1);
}

static void numbers_are_printed_with_the_fewest_digits_that_give_them_back(void **state)
{
    (void)state;
    static const struct {
        char *given;
        const char *printed;
    } cases[] = {{"2e-4", "0.0002"}, {"0.1", "0.1"},      {"0.10000000000000002", "0.10000000000000002"},
                 {"0", "0"},         {"1e300", "1e+300"}, {"auto", "auto"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer text = {0};
        assert_ok(parse(TRAIN, "--learning-rate", cases[i].given));
        assert_ok(options_get(&options, OPTION_learning_rate, &text));
        assert_string_equal(text.data, cases[i].printed);
        buffer_free(&text);
    }
}

/* Those that are easy to get wrong. That a checkpoint compares what decides is tested in unit-checkpoint. */
static void a_row_says_whether_numbers_depend_on_it(void **state)
{
    (void)state;
    static const enum option decides[] = {OPTION_tf32,    OPTION_dtype,   OPTION_seed,     OPTION_learning_rate,
                                          OPTION_packing, OPTION_shuffle, OPTION_bad_rows, OPTION_lr_scheduler_type};
    static const enum option free_to_change[] = {OPTION_device,     OPTION_recompute,    OPTION_micro_batch_tokens,
                                                 OPTION_threads,    OPTION_cuda_graph,   OPTION_cuda_code,
                                                 OPTION_eval_steps, OPTION_save_steps,   OPTION_resume,
                                                 OPTION_output_dir, OPTION_dataset_path, OPTION_json};
    for (size_t i = 0; i < sizeof decides / sizeof *decides; i++)
        assert_true(options_decides(decides[i]));
    for (size_t i = 0; i < sizeof free_to_change / sizeof *free_to_change; i++)
        assert_false(options_decides(free_to_change[i]));
    assert_true(options_same(OPTION_learning_rate, "0.0002", "0.00020000000000000001")); /* as older checkpoints have it */
    assert_false(options_same(OPTION_learning_rate, "0.0002", "0.0003"));
    assert_false(options_same(OPTION_lora_target_modules, "1", "1.0"));
    for (int i = 0; i < OPTIONS; i++)
        if (options_decides((enum option)i) && !options_has(COMMAND_TRAIN, (enum option)i))
            fail_msg("%s decides what a training run computes, and is no option of it", options_name((enum option)i));
}

static void a_command_line_is_planned_by_changing_one_word(void **state)
{
    (void)state;
    static const enum user_command others[] = {COMMAND_PLAN, COMMAND_BENCH};
    for (int i = 0; i < OPTIONS; i++)
        for (int c = 0; c < 2; c++)
            if (options_has(COMMAND_TRAIN, (enum option)i) && !options_has(others[c], (enum option)i))
                fail_msg("hone %s does not take %s", options_command_name(others[c]), options_name((enum option)i));
}

static void values_are_set_by_name(void **state)
{
    (void)state;
    char key[] = "model", value[] = "dir", source[] = "the caller";
    assert_ok(options_set(&options, COMMAND_EVAL, key, value, source));
    memset(value, 'x', 3);
    memset(source, 'x', 3);
    assert_string_equal(options.model_name_or_path, "dir");
    assert_string_equal(options.source[OPTION_model_name_or_path], "the caller");
    assert_fails(options_set(&options, COMMAND_TRAIN, "sead", "1", "the caller"), ERR_ARGUMENT,
                 "the caller: unknown option 'sead': did you mean 'seed'?");
    assert_fails(options_set(&options, COMMAND_EVAL, "dtype", "int", "the caller"), ERR_ARGUMENT,
                 "the caller: dtype cannot be 'int'");
}

static void a_needed_option_is_asked_for(void **state)
{
    (void)state;
    assert_fails(options_need(&options, COMMAND_EVAL, OPTION_model_name_or_path), ERR_ARGUMENT,
                 "hone eval needs --model DIR: a model directory");
    assert_fails(options_need(&options, COMMAND_TRAIN, OPTION_output_dir), ERR_ARGUMENT,
                 "hone train needs --output DIR: where the result goes");
    assert_fails(options_need(&options, COMMAND_TRAIN, OPTION_output_dir), ERR_ARGUMENT, "--model DIR --data FILE --output DIR");
    assert_fails(options_need(&options, COMMAND_GENERATE, OPTION_prompt), ERR_ARGUMENT, "hone generate needs --prompt TEXT");
    assert_ok(options_need(&options, COMMAND_EVAL, OPTION_dtype));
    assert_ok(options_set(&options, COMMAND_EVAL, "model", "dir", "a test"));
    assert_ok(options_need(&options, COMMAND_EVAL, OPTION_model_name_or_path));
}

static void commands_are_found_by_name(void **state)
{
    (void)state;
    enum user_command command;
    for (int c = 0; c < COMMANDS; c++) {
        assert_ok(options_command(&command, options_command_name((enum user_command)c)));
        assert_int_equal(command, c);
    }
    assert_fails(options_command(&command, "genrate"), ERR_ARGUMENT, "unknown command 'genrate': the nearest is 'generate'");
    assert_fails(options_command(&command, ""), ERR_ARGUMENT, "unknown command ''");
}

static void yaml_sets_options(void **state)
{
    (void)state;
    assert_ok(load(COMMAND_EVAL, "# a run\nmodel_name_or_path: /a/b\ndata: 'x: y'\nmax-length: 128\njson: true\n"
                                 "dtype: \"float32\"\nprompt: null\nseed: ~\nthreads:\n"));
    assert_string_equal(options.model_name_or_path, "/a/b");
    assert_string_equal(options.dataset_path, "x: y");
    assert_int_equal(options.max_length, 128);
    assert_true(options.json);
    assert_int_equal(options.dtype, CHOICE_dtype_float32);
    assert_int_equal(options.threads, 0);
    assert_null(options.source[OPTION_threads]);
    assert_non_null(strstr(options.source[OPTION_max_length], ".yaml:4"));
    assert_ok(load(COMMAND_GENERATE, "system: 'null'\nprompt: |\n  two\n  lines\n"));
    assert_string_equal(options.system, "null");
    assert_string_equal(options.prompt, "two\nlines\n");
    assert_ok(load(COMMAND_TRAIN, "learning_rate: 1e-3\nr: 8\nlora_target_modules: q_proj,v_proj\n"
                                  "rank_pattern: q_proj=8,layers.0.mlp.up_proj=4\noutput: out\nshuffle: false\n"));
    assert_true(options.learning_rate == 1e-3 && options.lora_r == 8 && !options.shuffle);
    assert_string_equal(options.lora_target_modules, "q_proj,v_proj");
    assert_string_equal(options.rank_pattern, "q_proj=8,layers.0.mlp.up_proj=4");
    assert_string_equal(options.output_dir, "out");
    assert_ok(load(COMMAND_EVAL, ""));
    assert_ok(load(COMMAND_EVAL, "# nothing\n"));
    assert_ok(load(COMMAND_EVAL, "---\n"));
    assert_ok(load(COMMAND_EVAL, "{}\n"));
}

static void yaml_serves_several_commands(void **state)
{
    (void)state;
    assert_ok(load(COMMAND_DEVICES, "prompt: hello\nmax_new_tokens: 5\njson: true\n"));
    assert_null(options.prompt);
    assert_int_equal(options.max_new_tokens, 256);
    assert_true(options.json);
    assert_fails(load(COMMAND_DEVICES, "json: true\nmax_new_tokens: many\n"), ERR_ARGUMENT,
                 ".yaml:2: max_new_tokens cannot be 'many': it takes a whole number from 1 to 2147483647");
}

static void flags_win_over_the_file(void **state)
{
    (void)state;
    const char *path = yaml("max_length: 5\ndtype: bfloat16\n");
    assert_ok(parse(EVAL, "--max-length", "6", "--config", (char *)path));
    assert_int_equal(options.max_length, 6);
    assert_string_equal(options.source[OPTION_max_length], "--max-length");
    assert_int_equal(options.dtype, CHOICE_dtype_bfloat16);
    assert_ok(parse(EVAL, "--config", (char *)path, "--dtype=auto"));
    assert_int_equal(options.max_length, 5);
    assert_int_equal(options.dtype, CHOICE_dtype_auto);
    yaml("max_length: -5\n");
    assert_fails(parse(EVAL, "--config", (char *)path, "--max-length=6"), ERR_ARGUMENT, ".yaml:1: max_length cannot be '-5'");
    unlink(path);
    assert_fails(parse(EVAL, "--config", (char *)path), ERR_IO, "no such file");
}

static void yaml_errors_say_where(void **state)
{
    (void)state;
    assert_fails(load(COMMAND_EVAL, "json: true\nmax_lenght: 3\n"), ERR_ARGUMENT,
                 ".yaml:2: unknown key 'max_lenght': did you mean 'max_length'?");
    assert_fails(load(COMMAND_EVAL, "? 'q\\n'\n: 1\n"), ERR_ARGUMENT, ".yaml:1: unknown key");
    assert_fails(load(COMMAND_EVAL, "seed: 1\n\nseed: 1\n"), ERR_ARGUMENT, ".yaml:3: seed was already given in line 1");
    assert_fails(load(COMMAND_EVAL, "model: a\nmodel_name_or_path: b\n"), ERR_ARGUMENT,
                 ".yaml:2: model_name_or_path was already given in line 1");
    assert_fails(load(COMMAND_EVAL, "config: x.yaml\n"), ERR_ARGUMENT, "'config' can only be given on the command line");
    assert_fails(load(COMMAND_EVAL, "json: true\ncache_dir: [a, b]\n"), ERR_ARGUMENT,
                 ".yaml:2: cache_dir takes one value, not a list");
    assert_fails(load(COMMAND_EVAL, "data:\n  a: b\n"), ERR_ARGUMENT, ".yaml:2: dataset_path takes one value, not a mapping");
    assert_fails(load(COMMAND_EVAL, "json: maybe\n"), ERR_ARGUMENT, ".yaml:1: json cannot be 'maybe': it takes true or false");
    assert_fails(load(COMMAND_EVAL, "data: ''\n"), ERR_ARGUMENT, "it takes a path");
    assert_fails(load(COMMAND_EVAL, "[a]: 3\n"), ERR_FORMAT, ".yaml:1: a key must be the name of an option");
    assert_fails(load(COMMAND_EVAL, "- a\n- b\n"), ERR_FORMAT, ".yaml:1: options are needed here");
    assert_fails(load(COMMAND_EVAL, "just text\n"), ERR_FORMAT, "options are needed here");
    assert_fails(load(COMMAND_EVAL, "seed: 1\n---\nseed: 2\n"), ERR_FORMAT, ".yaml:2: only one document");
    assert_fails(load(COMMAND_EVAL, "seed: 1\n---\n"), ERR_FORMAT, "only one document");
    assert_fails(load(COMMAND_EVAL, "model: &a x\ndata: *a\n"), ERR_FORMAT, ".yaml:2: aliases (*name) are not supported");
    assert_fails(load(COMMAND_EVAL, "*a : x\n"), ERR_FORMAT, ".yaml:1: aliases");
    assert_fails(load(COMMAND_EVAL, "seed: !!int 3\n"), ERR_FORMAT, ".yaml:1: tags (!name) are not supported");
    assert_fails(load(COMMAND_EVAL, "model: \"a\\0b\"\n"), ERR_FORMAT, ".yaml:1: a text with a zero byte");
    assert_fails(load(COMMAND_EVAL, "seed: 1\n\tdata: x\n"), ERR_FORMAT, ".yaml:2: not valid YAML: ");
    assert_fails(load(COMMAND_EVAL, "seed: 'x\n"), ERR_FORMAT, "not valid YAML: ");
    assert_fails(load(COMMAND_EVAL, "seed: {a: b\n"), ERR_ARGUMENT, ".yaml:1: seed takes one value");
    assert_fails(load(COMMAND_EVAL, "seed: \xff\n"), ERR_FORMAT, "not a YAML text: ");
    assert_fails(options_load_yaml(&options, COMMAND_EVAL, "/tmp"), ERR_IO, "is a directory");
}

static void yaml_files_are_small(void **state)
{
    (void)state;
    char *text = malloc((2 << 20) + 1);
    memset(text, '#', 2 << 20);
    text[2 << 20] = 0;
    assert_fails(load(COMMAND_EVAL, text), ERR_FORMAT, "more than the 1048576");
    /* Deep nesting must be an error, not a deep stack. */
    memset(text, '[', 1000000);
    text[1000000] = 0;
    memcpy(text, "data: ", 6);
    assert_fails(load(COMMAND_EVAL, text), ERR_ARGUMENT, "takes a list of single values");
    free(text);
}

/* Every allocation of a parse with a file fails once: the error is ERR_MEMORY, and the leak checker finds nothing. */
static void a_parse_survives_failing_memory(void **state)
{
    (void)state;
    const char *path = yaml("max_length: 5\ndtype: bfloat16\nseed: 3\n");
    char *words[] = {"--model", "dir", "--json", "positional", "--config", (char *)path};
    struct failing f = {0};
    while (failing_next(&f)) {
        fresh(NULL);
        failing_begin(&f);
        enum status status = options_parse(&options, COMMAND_EVAL, 6, words, &arguments);
        failing_end(&f, status);
        if (status != OK)
            assert_fails(status, ERR_MEMORY, "out of memory");
    }
    assert_true(f.failed > 1);
    assert_int_equal(options.max_length, 5);
    unlink(path);
}

typedef enum status writer(struct buffer *text);

static enum status write_help(struct buffer *text)
{
    for (int c = 0; c < COMMANDS; c++)
        TRY(options_help((enum user_command)c, text));
    return OK;
}

static void texts_survive_failing_memory(void **state)
{
    (void)state;
    writer *const writers[] = {write_help, options_start, options_overview, options_markdown, options_complete, options_manual};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        struct failing f = {0};
        while (failing_next(&f)) {
            struct buffer text = {0};
            failing_begin(&f);
            failing_end(&f, writers[i](&text));
            buffer_free(&text);
        }
    }
}

static void help_is_grouped_and_wrapped(void **state)
{
    (void)state;
    struct buffer text = {0};
    assert_ok(options_help(COMMAND_GENERATE, &text));
    assert_non_null(strstr(text.data, "Usage: hone generate ADAPTER|--model DIR --prompt TEXT [options]\n"));
    assert_non_null(strstr(text.data, "\n\nPrint a model's answer to a prompt, as it is made.\n"));
    assert_non_null(strstr(text.data, "\nGeneration:\n  --prompt TEXT "));
    assert_non_null(strstr(text.data, "\n  --model-name-or-path, --model DIR\n"));
    assert_non_null(strstr(text.data, "(default 256)"));
    assert_non_null(strstr(text.data, "(cpu,"));
    assert_non_null(strstr(text.data, "\n  --help, -h "));
    assert_null(strstr(text.data, "--data"));
    assert_null(strstr(text.data, "(default false)"));
    buffer_free(&text);
    assert_ok(options_help(COMMAND_DEVICES, &text));
    assert_null(strstr(text.data, "Generation:"));
    assert_ok(write_help(&text));
    assert_ok(options_start(&text));
    assert_ok(options_overview(&text));
    for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    buffer_free(&text);
}

/* What the completion offers after `hone eval ...` when bash itself runs it. */
static void bash_completes(void **state)
{
    (void)state;
    static const struct {
        const char *line, *offered;
    } cases[] = {
        {"hone ev", "eval"},
        {"hone eval --max", "--max-length"},
        {"hone eval --dtype b", "bfloat16"},
        {"hone train --lora-target-m", "--lora-target-modules"},
        {"hone train --recompute s", "selective"},
        {"hone plan --device c", "cpu cuda"},
        {"hone inspect --model docs/opt", "docs/options.md"},
        {"hone generate --prompt x", ""},
        {"hone devices --prompt", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "/tmp/hone-complete-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        struct buffer text = {0};
        assert_ok(options_complete(&text));
        assert_ok(buffer_format(&text,
                                "COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hone\n"
                                "[ \"${COMPREPLY[*]}\" = \"%s\" ]\n",
                                cases[i].line, cases[i].offered));
        assert_ok(file_replace(path, text.data, text.size));
        buffer_free(&text);
        char command[128];
        snprintf(command, sizeof command, "bash -u %s", path);
        int result = system(command);
        unlink(path);
        if (result != 0)
            fail_msg("'%s' did not complete to '%s'", cases[i].line, cases[i].offered);
    }
}

/* HONE_UPDATE_DOCS=1 writes the file that this compares. */
static void docs_are_those_of_the_table(void **state)
{
    (void)state;
    struct buffer made = {0}, kept = {0};
    assert_ok(options_markdown(&made));
    if (getenv("HONE_UPDATE_DOCS"))
        assert_ok(file_replace("docs/options.md", made.data, made.size));
    assert_ok(file_read(&kept, "docs/options.md", 1 << 20));
    if (strcmp(made.data, kept.data) != 0)
        fail_msg("docs/options.md is not what options.def says: run make docs");
    buffer_free(&made);
    buffer_free(&kept);
}

#define test(function) cmocka_unit_test_setup_teardown(function, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(defaults_are_those_of_the_table),
        test(flags_have_every_usual_form),
        test(booleans_stand_alone_or_take_a_word),
        test(arguments_stand_between_options),
        test(help_needs_no_file),
        test(unknown_flags_name_the_nearest),
        test(numbers_are_printed_with_the_fewest_digits_that_give_them_back),
        test(flags_of_other_commands_say_whose_they_are),
        test(missing_values_are_not_taken_from_the_next_flag),
        test(bad_values_say_what_is_allowed),
        test(devices_are_not_judged_here),
        test(choices_are_numbers_and_words),
        test(a_row_says_whether_numbers_depend_on_it),
        test(a_command_line_is_planned_by_changing_one_word),
        test(values_are_set_by_name),
        test(a_needed_option_is_asked_for),
        test(commands_are_found_by_name),
        test(yaml_sets_options),
        test(yaml_serves_several_commands),
        test(flags_win_over_the_file),
        test(yaml_errors_say_where),
        test(yaml_files_are_small),
        test(a_parse_survives_failing_memory),
        test(texts_survive_failing_memory),
        test(help_is_grouped_and_wrapped),
        test(docs_are_those_of_the_table),
        test(bash_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
