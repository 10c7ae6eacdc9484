/* A lock among the threads of this process; base/lock.h has those among processes. */
#ifndef BASE_MUTEX_H
#define BASE_MUTEX_H

#include <pthread.h>

struct mutex {
    pthread_mutex_t of_system;
};

/* For a variable that lives as long as the process. */
#define MUTEX_FREE                                                                                                               \
    {                                                                                                                            \
        PTHREAD_MUTEX_INITIALIZER                                                                                                \
    }

static inline void mutex_take(struct mutex *mutex)
{
    pthread_mutex_lock(&mutex->of_system);
}

static inline void mutex_give(struct mutex *mutex)
{
    pthread_mutex_unlock(&mutex->of_system);
}

#endif
