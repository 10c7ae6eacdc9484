/* With libFuzzer: gives the target its inputs, and no input more than some seconds of the processor.
 *
 * libFuzzer's own -timeout measures by the clock on the wall, so that a machine that is busy, or a process that is stopped for a
 * while, looks like a parser that hangs. It is left for what waits and takes no time of the processor. */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz.h"

/* Under the sanitizers all takes 20 to 40 times as long as in a release, in which no file may cost more than a second. */
enum { SECONDS_MAX = 30 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void end(int number)
{
    static const char message[] = "not true: an input takes less than 30 seconds of the processor\n";
    (void)number;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
        _exit(1);
    abort(); /* libFuzzer writes the input to a file */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct itimerval limit = {.it_value = {.tv_sec = SECONDS_MAX}}; /* of all threads together */
    static int ready;
    if (!ready++)
        PROMISE(signal(SIGPROF, end) != SIG_ERR);
    PROMISE(setitimer(ITIMER_PROF, &limit, NULL) == 0);
    fuzz_input(data, size);
    return 0;
}
