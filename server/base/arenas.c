/* arenas.c: see arenas.h. */
#include "arenas.h"

#include "xn_mem.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>

#define MOST_ARENAS 8
#define MAPPED_BYTES (4 << 20) /* from here on a block is a mapping of its own */
#define TRIM_BYTES (16 << 20)  /* at the end of an arena, free: kept for the next request */

typedef struct makers {
    pthread_mutex_t end; /* no thread ends before all have an arena, so that each has its own */
    sem_t there;
} makers;

static void *make_arena(void *argument) {
    makers *m = argument;
    void *memory = xn_mem_alloc(1);
    sem_post(&m->there);
    pthread_mutex_lock(&m->end);
    pthread_mutex_unlock(&m->end);
    xn_mem_free(memory);
    return NULL;
}

/* The arena of a thread that has ended is the next thread's. */
static void make_arenas(int count) {
    makers m = {.end = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MOST_ARENAS];
    int made = 0;
    sem_init(&m.there, 0, 0);
    pthread_mutex_lock(&m.end);
    while (made < count && !pthread_create(&threads[made], NULL, make_arena, &m))
        made++;
    for (int i = 0; i < made; i++)
        while (sem_wait(&m.there))
            ; /* a signal came */
    pthread_mutex_unlock(&m.end);
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    sem_destroy(&m.there);
}

void xn_arenas_set_up(int count) {
    count = count < 2 ? 2 : count > MOST_ARENAS ? MOST_ARENAS : count;
    mallopt(M_ARENA_MAX, count);
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    make_arenas(count - 1); /* the main thread has one */
}
