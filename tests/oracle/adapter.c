/* What hone reads in an adapter's directory, for comparison with PEFT.
 *
 *     adapter show DIR        for every module name on stdin a line: name, targeted, rank, scale, saved
 *     adapter copy DIR TO     writes the config back to another directory
 */
#include <stdio.h>
#include <string.h>

#include "format/adapter.h"

static void show(const struct adapter_config *config)
{
    char name[1024];
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = 0;
        printf("%s %d %lld %.17g %d\n", name, adapter_targets(config, name, "lm_head"), (long long)adapter_rank(config, name),
               adapter_scale(config, name), adapter_saves(config, name));
    }
}

int main(int argc, char **argv)
{
    if (!(argc == 3 && strcmp(argv[1], "show") == 0) && !(argc == 4 && strcmp(argv[1], "copy") == 0)) {
        fprintf(stderr, "usage: adapter show DIR | adapter copy DIR TO\n");
        return (int)ERR_ARGUMENT;
    }
    struct adapter_config config;
    enum status status = adapter_config_open(&config, argv[2]);
    if (status == OK && argc == 3)
        show(&config);
    else if (status == OK)
        status = adapter_config_write(&config, argv[3]);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    adapter_config_free(&config);
    return (int)status;
}
