/* Zeros take as long as other numbers. */
#include "device/matmul_time.h"

#include "base/clock.h"

enum { ROWS = 64, SIZE = 512, RUNS = 4 };

static enum status time_runs(struct device *device, const struct command *command, double *seconds)
{
    struct prepared *prepared;
    enum status status;
    TRY(device_prepare(device, command, 1, &prepared));
    for (int i = 0; i < RUNS; i++) {
        double start = clock_seconds();
        status = device_run(device, prepared);
        double took = clock_seconds() - start;
        *seconds = i == 0 || took < *seconds ? took : *seconds;
        if (status != OK)
            break;
    }
    device_discard(device, prepared);
    return status;
}

enum status matmul_time(struct device *device, enum dtype x, enum dtype w, double *seconds)
{
    struct command command = {.kind = COMMAND_GEMM,
                              .gemm = {ROWS, SIZE, SIZE, .transpose_b = true, .a = x, .b = w, .c = x, .alpha = 1}};
    int64_t bytes[GEMM_OPERANDS] = {ROWS * SIZE * dtype_size(x), SIZE * SIZE * dtype_size(w), ROWS * SIZE * dtype_size(x)};
    TRY(device_gemm_query(device, &command.gemm, &bytes[GEMM_WORKSPACE]));
    enum status status = OK;
    for (int i = 0; i < GEMM_OPERANDS; i++) {
        command.operand[i].block = -1;
        if (bytes[i] && status == OK)
            status = device_alloc(device, bytes[i], &command.operand[i].block);
    }
    if (status == OK)
        status = time_runs(device, &command, seconds);
    for (int i = 0; i < GEMM_OPERANDS; i++)
        if (command.operand[i].block >= 0)
            device_release(device, command.operand[i].block);
    return status;
}
