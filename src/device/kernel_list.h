/* A device that computes nothing: preparing programs on it collects the variants of kernels that a compiling device would
 * need for them. It has no memory, so that programs of any size can be prepared anywhere. device_open knows it as "kernels", and
 * as "kernels:rtx4090" it stands for a card (device/gpu_spec.h): programs are planned for the card's memory.
 *
 * Where devices choose between a kernel for tensor cores and another one, both are listed, each with its targets.
 * Matmuls are listed as launches of the tiled kernel, which are not needed where a library multiplies.
 */
#ifndef DEVICE_KERNEL_LIST_H
#define DEVICE_KERNEL_LIST_H

#include "device/gpu_spec.h"
#include "device/kernel.h"

struct kernel_need {
    const struct kernel *kernel;
    const char *options; /* kernel_options */
    int from, until;     /* the targets that need it, as 89 for compute capability 8.9; not `until` itself */
};

struct kernel_list {
    struct arena arena;
    struct kernel_need *need; /* each once, in the order of first use */
    int64_t count, capacity;
};

/* The kernels of everything that was prepared on such a device. */
const struct kernel_list *kernel_list_of(const struct device *device);

/* The card that such a device stands for; NULL: none. */
const struct gpu_spec *kernel_list_card(const struct device *device);

/* Adds what is not there yet. */
enum status kernel_list_add(struct kernel_list *list, const struct kernel_need *need);
void kernel_list_free(struct kernel_list *list);

#endif
