/* hone devices: the devices of this machine, as JSON. */
#include <stdio.h>

#include "base/limits.h"
#include "commands/commands.h"
#include "device/device.h"

/* The README says the same; a test compares the two. */
static const char tried[] =
    "Training has run on CPUs. No GPU has run it yet: OpenCL has run on PoCL, which is a CPU, and CUDA on a simulator";

static json_t *one_device(const char *name)
{
    struct device *device;
    if (device_open(&device, name) != OK)
        return json_pack("{s:s, s:b, s:s}", "device", name, "usable", 0, "why", status_message());
    struct device_info info;
    device_info(device, &info);
    struct memory_room room = {.limit = ""};
    if (info.host_memory)
        limits_memory(&room, "");
    device_close(device);
    return json_pack("{s:s, s:b, s:s, s:s?, s:I, s:I, s:s?, s:b, s:s?, s:i}", "device", name, "usable", 1, "name", info.name,
                     "id", info.id[0] ? info.id : NULL, "memory_bytes", (json_int_t)info.memory, "free_bytes",
                     (json_int_t)info.memory_free, "limit", room.limit[0] ? room.limit : NULL, "bfloat16", (int)info.bf16,
                     "instructions", info.instructions, "threads", info.threads);
}

/* Where there are several of a kind, each by its number. */
enum status command_devices(const struct options *options, enum user_command command, json_t **report)
{
    (void)options, (void)command;
    json_t *list = json_array();
    for (int i = 0; device_choice(i); i++) {
        int count = device_count(device_choice(i));
        for (int n = 0; n < count || n < 1; n++) {
            char name[32];
            snprintf(name, sizeof name, count > 1 ? "%s:%d" : "%s", device_choice(i), n);
            json_array_append_new(list, one_device(name));
        }
    }
    *report = json_pack("{s:o, s:s}", "devices", list, "tried", tried);
    return OK;
}
