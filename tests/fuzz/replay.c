/* Without libFuzzer: gives the target every file of the folders named on the command line. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "fuzz.h"

static int replay(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), files = 0;
    for (int i = 0; i < n; i++) {
        struct arena arena = {0};
        struct buffer bytes = {0};
        const char *path = file_join(&arena, folder, entries[i]->d_name);
        if (path && !file_is_directory(path)) {
            printf("%s\n", path);
            fflush(stdout); /* the last line names the culprit if the target dies */
            PROMISE(file_read(&bytes, path, INT64_MAX) == OK);
            uint8_t *exact = malloc(bytes.size ? (size_t)bytes.size : 1); /* so that a read past the end is seen */
            PROMISE(exact != NULL);
            memcpy(exact, bytes.data, (size_t)bytes.size);
            fuzz_input(exact, (size_t)bytes.size);
            PROMISE(fuzz_accepted() || strncmp(entries[i]->d_name, "good", 4) != 0);
            free(exact);
            files++;
        }
        buffer_free(&bytes);
        arena_free(&arena);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return files;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++)
        files += replay(argv[i]);
    printf("%d files\n", files);
    return files ? 0 : 1;
}
