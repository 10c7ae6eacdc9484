/* Finding a device by its name and number, on any machine. */
#include "test.h"

#include "device/device.h"

static void a_device_is_a_name_with_an_optional_number(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } wrong[] = {
        {"gpu", "there is no device 'gpu': use cuda, opencl, cpu or auto"},
        {"", "there is no device ''"},
        {"auto:0", "there is no device 'auto:0': use cuda"},
        {"cud", "there is no device 'cud'"},
        {"cuda1", "there is no device 'cuda1'"},
        {"cuda:", "after the colon comes a number from 0, as in cuda:1"},
        {"cuda:x", "there is no device 'cuda:x'"},
        {"cuda:-1", "there is no device 'cuda:-1'"},
        {"cuda: 1", "there is no device 'cuda: 1'"},
        {"cuda:1x", "there is no device 'cuda:1x'"},
        {"opencl:99999999999999999999", "as in opencl:1"},
        {"cpu:0", "there is one cpu, which takes no number"},
        {"kernels:0", "there is no card '0': use one of t4"},
    };
    struct device *device;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_fails(device_open(&device, wrong[i].name), ERR_ARGUMENT, wrong[i].says);
        assert_null(device);
    }
    assert_ok(device_open(&device, "cpu"));
    assert_ptr_equal(device->class, &device_cpu);
    device_close(device);
}

static void names_are_those_that_a_user_may_choose(void **state)
{
    (void)state;
    assert_string_equal(device_choice(0), "cuda");
    assert_string_equal(device_choice(1), "opencl");
    assert_string_equal(device_choice(2), "cpu");
    assert_null(device_choice(3));
    assert_null(device_choice(-1));
}

static void a_class_bears_the_name_of_its_row(void **state)
{
    (void)state;
#define DEVICE(kind, purpose, numbers, library, hardware) assert_string_equal(device_##kind.name, #kind);
#include "device/devices.def"
#undef DEVICE
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_a_name_with_an_optional_number),
        cmocka_unit_test(names_are_those_that_a_user_may_choose),
        cmocka_unit_test(a_class_bears_the_name_of_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
