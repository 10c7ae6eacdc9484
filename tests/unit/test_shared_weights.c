/* Models and trainers on one base, only through hone.h: its weights are in the process once, and nothing else about the handles
 * changes. */
#define TINY_WIDTH 768
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>

#include "base/memory.h"
#include "base/process.h"
#include "failing.h"
#include "format/nf4_codes.h"
#include "hone.h"
#include "tiny_model.h"

#ifdef HONE_SANITIZED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { LENGTH = 24, HANDLES = 3 };

static struct tiny_model tiny;
static char path[128]; /* of its weights */
static int32_t ids[LENGTH];
static const hone_datum datum = {.size = sizeof datum, .ids = ids, .count = LENGTH};
static const hone_datum *const data[] = {&datum};

#define check(call)                                                                                                              \
    do {                                                                                                                         \
        if ((call) != HONE_OK)                                                                                                   \
            fail_msg("%s: %s", #call, hone_error());                                                                             \
    } while (0)

/* The files are float32: in a run in bfloat16 matrices are copies. */
static hone_options *make_options(const char *command, const char *dtype, const char *type)
{
    hone_options *o = NULL;
    check(hone_options_create(&o, command));
    check(hone_options_set(o, "model", tiny.dir));
    check(hone_options_set(o, "dtype", dtype));
    if (strcmp(command, "train") != 0)
        return o;
    check(hone_options_set(o, "micro_batch_tokens", "64"));
    check(hone_options_set(o, "lora_r", "4"));
    check(hone_options_set(o, "finetuning_type", type));
    return o;
}

static hone_trainer *open_trainer(const char *dtype, const char *type)
{
    hone_trainer *t = NULL;
    hone_options *o = make_options("train", dtype, type);
    check(hone_trainer_open(&t, o, NULL));
    hone_options_destroy(o);
    return t;
}

static hone_model *open_model(const char *dtype)
{
    hone_model *m = NULL;
    hone_options *o = make_options("generate", dtype, NULL);
    check(hone_model_open(&m, o));
    hone_options_destroy(o);
    return m;
}

static double score(hone_model *m)
{
    float logprobs[LENGTH];
    double sum = 0;
    check(hone_logprobs(m, data, 1, (float *const[]){logprobs}));
    for (int i = 0; i < LENGTH; i++)
        sum += (double)logprobs[i];
    return sum;
}

/* The gradient's norm of a step. */
static double train_once(hone_trainer *t)
{
    hone_loss_sum sum = {.size = sizeof sum};
    hone_optim optim = {.size = sizeof optim};
    hone_step step = {.size = sizeof step};
    check(hone_trainer_forward_backward(t, data, 1, NULL, NULL, &sum));
    check(hone_trainer_optim_defaults(t, &optim));
    optim.learning_rate = 1e-3;
    check(hone_trainer_optim_step(t, &optim, &step));
    return step.grad_norm;
}

static hone_trainer_info info_of(hone_trainer *t)
{
    hone_trainer_info info = {.size = sizeof info};
    check(hone_trainer_get_info(t, &info));
    return info;
}

static int64_t resident(void)
{
    int64_t now, peak;
    process_memory(&now, &peak);
    return now;
}

/* How often a file of the model is mapped. */
static int count_maps(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, path) != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* --- once ----------------------------------------------------------------------------------------------------------------- */

/* Seen to fail: without sharing each further handle took the bytes of all weights again. */
static void a_further_handle_takes_no_weights(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int d = 0; d < 2; d++) {
        hone_trainer *t[HANDLES];
        int64_t taken[HANDLES];
        double norm[HANDLES];
        for (int i = 0; i < HANDLES; i++) {
            int64_t before = resident();
            t[i] = open_trainer(dtypes[d], "lora");
            norm[i] = train_once(t[i]);
            taken[i] = resident() - before;
            assert_int_equal(count_maps(), 1);
        }
        hone_trainer_info info = info_of(t[1]);
        int64_t weights = 2 * (info.parameters - info.trainable_parameters) * (2 - d);
        assert_true(info.shared_bytes > weights * 9 / 10);
        assert_true(d || info.shared_bytes == info.mapped_bytes);
        assert_int_equal(info.planned_bytes, info.allocated_bytes);
        for (int i = 1; i < HANDLES; i++) {
            if (!SANITIZED && taken[i] > taken[0] - info.shared_bytes / 2)
                fail_msg("%s: the first handle took %lld bytes, %lld of them shared, and another one %lld", dtypes[d],
                         (long long)taken[0], (long long)info.shared_bytes, (long long)taken[i]);
            assert_true(norm[i] == norm[0]);
        }
        for (int i = 0; i < HANDLES; i++)
            hone_trainer_close(t[i]);
        assert_int_equal(count_maps(), 0);
    }
}

/* A model has what a trainer has, also when that is gone. A base that is trained is the trainer's own. */
static void a_model_and_trainers_do_not_disturb_each_other(void **state)
{
    (void)state;
    hone_model *alone = open_model("bfloat16");
    double want = score(alone);
    hone_model_close(alone);
    hone_trainer *lora = open_trainer("bfloat16", "lora"), *full = open_trainer("bfloat16", "full");
    hone_model *m = open_model("bfloat16");
    assert_int_equal(info_of(full).shared_bytes, 0);
    assert_true(info_of(lora).shared_bytes > 0);
    for (int i = 0; i < 3; i++) {
        train_once(lora);
        train_once(full);
    }
    assert_true(score(m) == want);
    hone_trainer_close(lora);
    hone_trainer_close(full);
    assert_true(score(m) == want);
    hone_model_close(m);
}

static int quantised; /* matrices */

enum status __real_nf4_quantise(const void *w, enum dtype dtype, int64_t count, int32_t *packed, float *absmax);
enum status __wrap_nf4_quantise(const void *w, enum dtype dtype, int64_t count, int32_t *packed, float *absmax);
enum status __wrap_nf4_quantise(const void *w, enum dtype dtype, int64_t count, int32_t *packed, float *absmax)
{
    quantised++;
    return __real_nf4_quantise(w, dtype, count, packed, absmax);
}

/* Seen to fail: with double quantisation each handle quantised all matrices, for the map that is each one's own. */
static void a_further_handle_quantises_nothing(void **state)
{
    (void)state;
    static const char *const twice[] = {"true", "false"};
    for (int d = 0; d < 2; d++) {
        hone_trainer *t[2] = {NULL};
        double norm[2];
        for (int i = 0; i < 2; i++) {
            hone_options *o = make_options("train", "float32", "lora");
            check(hone_options_set(o, "load_in_4bit", "true"));
            check(hone_options_set(o, "double_quantization", twice[d]));
            quantised = 0;
            check(hone_trainer_open(&t[i], o, NULL));
            assert_int_equal(quantised > 0, i == 0);
            norm[i] = train_once(t[i]);
            hone_options_destroy(o);
        }
        assert_true(norm[0] > 0 && norm[1] == norm[0]);
        for (int i = 0; i < 2; i++)
            hone_trainer_close(t[i]);
    }
}

/* --- who must not share --------------------------------------------------------------------------------------------------- */

static struct buffer file; /* as it was made */

/* Other numbers in the file, which has the same size: in its place another file, or the same one overwritten. */
static void change(bool overwrite)
{
    char *other = malloc((size_t)file.size);
    assert_non_null(other);
    memcpy(other, file.data, (size_t)file.size);
    for (int64_t i = file.size / 8 * 4; i + 4 <= file.size; i += 4)
        other[i + 3] ^= (char)0x80; /* the sign */
    if (overwrite) {
        FILE *old = fopen(path, "r+");
        assert_non_null(old);
        assert_int_equal(fwrite(other, 1, (size_t)file.size, old), file.size);
        fclose(old);
    } else
        assert_ok(file_replace(path, other, file.size));
    free(other);
}

/* Seen to fail: with maps found by the path alone, or with a key that did not say which file the bytes come from, the second
 * model had weights of the first. */
static void a_base_that_has_changed_is_another(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        bool overwrite; /* not where the first model uses the file itself */
    } cases[] = {{"float32", false}, {"bfloat16", false}, {"bfloat16", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hone_model *before = open_model(cases[i].dtype);
        double was = score(before);
        change(cases[i].overwrite);
        hone_model *after = open_model(cases[i].dtype);
        double is = score(after);
        assert_true(score(before) == was);
        hone_model_close(before);
        hone_model_close(after);
        hone_model *alone = open_model(cases[i].dtype);
        assert_true(is != was);
        assert_true(score(alone) == is);
        hone_model_close(alone);
        assert_ok(file_replace(path, file.data, file.size));
    }
}

/* --- several threads and processes ------------------------------------------------------------------------------------------ */

struct opener {
    pthread_barrier_t *ready;
    const char *dtype;
    double norm;
};

static void *open_and_train(void *context)
{
    struct opener *o = context;
    pthread_barrier_wait(o->ready);
    hone_trainer *t = open_trainer(o->dtype, "lora");
    o->norm = train_once(t);
    hone_trainer_close(t);
    return NULL;
}

static void threads_may_open_it_at_once(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int d = 0; d < 2; d++) {
        pthread_barrier_t ready;
        pthread_t thread[HANDLES];
        struct opener o[HANDLES];
        assert_int_equal(pthread_barrier_init(&ready, NULL, HANDLES), 0);
        for (int i = 0; i < HANDLES; i++) {
            o[i] = (struct opener){.ready = &ready, .dtype = dtypes[d]};
            assert_int_equal(pthread_create(&thread[i], NULL, open_and_train, &o[i]), 0);
        }
        for (int i = 0; i < HANDLES; i++)
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        for (int i = 1; i < HANDLES; i++)
            assert_true(o[i].norm == o[0].norm);
        pthread_barrier_destroy(&ready);
    }
}

/* A child opens the base for itself. */
static void a_child_can_open_it_too(void **state)
{
    (void)state;
    int code;
    hone_model *m = open_model("bfloat16");
    double want = score(m);
    pid_t child = SANITIZED ? -1 : fork(); /* ThreadSanitizer permits no threads in a child */
    if (child == 0) {
        hone_model *own = open_model("bfloat16");
        bool good = score(own) == want;
        hone_model_close(own);
        _exit(good ? 0 : 1);
    }
    if (child > 0) {
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_int_equal(code, 0);
    }
    assert_true(score(m) == want);
    hone_model_close(m);
}

/* --- memory ----------------------------------------------------------------------------------------------------------------- */

/* A handle that cannot be opened leaves those that are open as they are, and what it began to others. */
static void failed_allocations_leave_the_others(void **state)
{
    (void)state;
    hone_options *options = make_options("train", "bfloat16", "lora");
    hone_model *m = NULL;
    double want = 0;
    struct failing f = {0};
    for (int held = 0; held < 2; held++) {
        if (held) {
            m = open_model("bfloat16");
            want = score(m);
        }
        f = (struct failing){0};
        while (failing_next(&f)) {
            hone_trainer *t = NULL;
            f.after += SANITIZED ? 90 : 25;
            failing_begin(&f);
            enum status status = (enum status)hone_trainer_open(&t, options, NULL);
            failing_end(&f, status);
            hone_trainer_close(t);
        }
        assert_true(f.failed > 5);
        assert_int_equal(count_maps(), held);
    }
    assert_true(score(m) == want);
    hone_model_close(m);
    assert_int_equal(count_maps(), 0);
    hone_options_destroy(options);
}

static int make_model(void **state)
{
    (void)state;
    for (int i = 0; i < LENGTH; i++)
        ids[i] = 10 + i % 5 * 7;
    tiny_model_make(&tiny, false);
    snprintf(path, sizeof path, "%s/model.safetensors", tiny.dir);
    assert_ok(file_read(&file, path, INT32_MAX));
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    buffer_free(&file);
    tiny_model_remove(&tiny);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_further_handle_takes_no_weights),
        cmocka_unit_test(a_further_handle_quantises_nothing),
        cmocka_unit_test(a_model_and_trainers_do_not_disturb_each_other),
        cmocka_unit_test(a_base_that_has_changed_is_another),
        cmocka_unit_test(threads_may_open_it_at_once),
        cmocka_unit_test(a_child_can_open_it_too),
        cmocka_unit_test(failed_allocations_leave_the_others),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
