/* Prints the learning rate of each step: schedule STEPS [options of hone train]. */
#include <stdio.h>
#include <stdlib.h>

#include "job/schedule.h"

int main(int argc, char **argv)
{
    struct arena arena = {0};
    struct options options;
    struct arguments rest;
    struct schedule schedule;
    int64_t steps = argc > 1 ? strtoll(argv[1], NULL, 10) : 0;
    options_init(&options, &arena);
    enum status status = options_parse(&options, COMMAND_TRAIN, argc - 2, argv + 2, &rest);
    if (status == OK)
        status = schedule_init(&schedule, &options, steps);
    for (int64_t step = 1; status == OK && step <= steps; step++)
        printf("%.17g\n", schedule_rate(&schedule, step));
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    arena_free(&arena);
    return (int)status;
}
