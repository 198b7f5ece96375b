/* sets.c: the instruction sets: their names, which --cpu-isa takes, and whether this machine
 * can run them, by what it says of itself. The order is that of preference. */
#include "sets.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not every compiler has a name for it. */
static bool has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_vpopcnt(void) {
    return has_avx512() && __builtin_cpu_supports("avx512vpopcntdq") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}

/* Linux lends a process the registers of AMX where it asks for them. */
static bool has_amx(void) {
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, TILES = 1 << 24, TILES_OF_BYTES = 1 << 25 };
    unsigned a, b, c, d = 0;
    return has_vpopcnt() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES) &&
           (d & TILES_OF_BYTES) && !syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA);
}
#endif

static bool always(void) {
    return true;
}

const xn_cpu_set xn_cpu_set_portable = {"portable", XN_CPU_PORTABLE, &xn_cpu_kernels_portable,
                                        always};
#if defined(__x86_64__)
/* The common kernels have no use for VPOPCNTDQ or AMX. */
const xn_cpu_set xn_cpu_set_amx = {"amx", XN_CPU_AMX, &xn_cpu_kernels_avx512, has_amx};
const xn_cpu_set xn_cpu_set_vpopcnt = {"avx512-vpopcnt", XN_CPU_VPOPCNT, &xn_cpu_kernels_avx512,
                                       has_vpopcnt};
const xn_cpu_set xn_cpu_set_avx512 = {"avx512", XN_CPU_AVX512, &xn_cpu_kernels_avx512, has_avx512};
const xn_cpu_set xn_cpu_set_avx2 = {"avx2", XN_CPU_AVX2, &xn_cpu_kernels_avx2, has_avx2};
#elif defined(__aarch64__)
const xn_cpu_set xn_cpu_set_neon = {"neon", XN_CPU_NEON, &xn_cpu_kernels_neon, always};
#endif

static const xn_cpu_set *const sets[] = {
#if defined(__x86_64__)
    &xn_cpu_set_amx,      &xn_cpu_set_vpopcnt, &xn_cpu_set_avx512, &xn_cpu_set_avx2,
#elif defined(__aarch64__)
    &xn_cpu_set_neon,
#endif
    &xn_cpu_set_portable,
};
enum { SET_COUNT = sizeof sets / sizeof *sets };

const xn_cpu_set *xn_cpu_set_at(int index) {
    for (int i = 0; i < SET_COUNT; i++)
        if (sets[i]->has() && index-- == 0)
            return sets[i];
    return NULL;
}

const xn_cpu_set *xn_cpu_set_find(const char *name) {
    for (int i = 0; i < SET_COUNT; i++)
        if (sets[i]->has() && !strcmp(sets[i]->name, name))
            return sets[i];
    return NULL;
}
