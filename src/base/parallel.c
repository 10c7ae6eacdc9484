/* parallel_for over libgomp's own entry points: what `#pragma omp parallel` compiles to in gcc, and what clang (whose
 * pragmas need another runtime) can call too. */
#include "base/parallel.h"

#include <stdatomic.h>

#include "base/number.h"

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);

struct loop {
    parallel_body *body;
    void *context;
    int64_t count, block;
    _Atomic int64_t next;
};

static void worker(void *data)
{
    struct loop *loop = data;
    for (;;) {
        int64_t begin = atomic_fetch_add(&loop->next, loop->block);
        if (begin >= loop->count)
            return;
        int64_t end = begin + min(loop->count - begin, loop->block);
        loop->body(loop->context, begin, end);
    }
}

void parallel_for(int64_t count, int64_t block, parallel_body *body, void *context)
{
    if (count <= 0)
        return;
    struct loop loop = {.body = body, .context = context, .count = count, .block = block > 0 ? block : 1};
    if (count <= loop.block || omp_get_max_threads() == 1)
        worker(&loop);
    else
        GOMP_parallel(worker, &loop, 0, 0);
}

int parallel_threads(void)
{
    return omp_get_max_threads();
}

void parallel_set_threads(int threads)
{
    if (threads > 0)
        omp_set_num_threads(threads);
}
