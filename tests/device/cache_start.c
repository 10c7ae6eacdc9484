/* One start of a process that needs two kernels: for tests/device/cache_race.py, which starts many at once on one cache.
 *
 *     cache-start DEVICE      opens the device, waits for the end of its input, compiles or loads, checks a result
 *
 * Prints how many kernels it compiled and loaded. Fails if a result is wrong, or on any warning: of a torn entry, for example. */
#include "cuda_rig.h"

static const char *device_name;

static void a_start_gives_the_right_result(void **state)
{
    (void)state;
    struct device *device;
    struct sums s;
    struct prepared *more;
    char byte;
    log_set_sink(count_warning, NULL);
    assert_ok(device_open(&device, device_name));
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    prepare_sums(&s, device);
    struct command other = launch_add(s.block, 0, 4 * SUMS, 8 * SUMS);
    other.launch.dtype[2] = DTYPE_BF16;
    assert_ok(device_prepare(device, &other, 1, &more));
    run_sums(&s, 1);
    run_sums(&s, 2);
    print_message("compiled %lld loaded %lld\n", (long long)device->counters.compiled, (long long)device->counters.loaded);
    if (warnings)
        fail_msg("%d warnings, the last one: %s", warnings, warning);
    device_discard(device, more);
    drop_sums(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_start_gives_the_right_result)};
    device_name = argc > 1 ? argv[1] : "cuda";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
