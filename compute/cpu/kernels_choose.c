/* kernels_choose.c: which of the tables of kernels this machine can run, by what it says of itself.
 * The order is that of preference. Their names are what --cpu-isa takes. */
#include "kernels.h"

#include <string.h>

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_vpopcnt(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vpopcntdq");
}
#endif

static bool always(void) {
    return true;
}

static const struct {
    const xn_cpu_kernels *kernels;
    bool (*has)(void);
} sets[] = {
#if defined(__x86_64__)
    {&xn_cpu_kernels_avx512, has_vpopcnt},
    {&xn_cpu_kernels_avx512_shuffle, has_avx512},
    {&xn_cpu_kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&xn_cpu_kernels_neon, always},
#endif
    {&xn_cpu_kernels_portable, always},
};
enum { SET_COUNT = sizeof sets / sizeof *sets };

const xn_cpu_kernels *xn_cpu_kernels_at(int index) {
    for (int i = 0; i < SET_COUNT; i++)
        if (sets[i].has() && index-- == 0)
            return sets[i].kernels;
    return NULL;
}

const xn_cpu_kernels *xn_cpu_kernels_find(const char *name) {
    for (int i = 0; i < SET_COUNT; i++)
        if (sets[i].has() && !strcmp(sets[i].kernels->name, name))
            return sets[i].kernels;
    return NULL;
}

bool xn_cpu_kernels_run(const xn_cpu_kernels *kernels) {
    for (int i = 0; i < SET_COUNT; i++)
        if (sets[i].kernels == kernels)
            return sets[i].has();
    return false;
}
