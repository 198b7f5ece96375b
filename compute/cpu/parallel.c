/* parallel.c: units of work over threads; the only file that knows of OpenMP. Units go out one by
 * one as threads become free, so a core that another process holds does not hold up the rest. */
#include "cpu.h"

#ifdef _OPENMP
#include <omp.h>

/* The processors this process may run on. */
int xn_cpu_thread_count(void) {
    int count = omp_get_num_procs();
    return count > 1 ? count : 1;
}

void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context) {
    if (threads > units)
        threads = (int)units;
    if (threads <= 1) {
        for (int64_t unit = 0; unit < units; unit++)
            task(context, unit, 0);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t unit = 0; unit < units; unit++)
        task(context, unit, omp_get_thread_num());
}

#else

int xn_cpu_thread_count(void) {
    return 1;
}

void xn_cpu_for(int threads, int64_t units, xn_cpu_task task, void *context) {
    (void)threads;
    for (int64_t unit = 0; unit < units; unit++)
        task(context, unit, 0);
}

#endif
