/* sets.h: the instruction sets that kernels are compiled for. A family of kernels has a table for
 * each set (paths.c says which); only those that several families use are named here. */
#ifndef XN_CPU_SETS_H
#define XN_CPU_SETS_H

#include "kernels.h"

typedef enum {
    XN_CPU_PORTABLE,
    XN_CPU_NEON,
    XN_CPU_AVX2,
    XN_CPU_AVX512,
    XN_CPU_VPOPCNT,
    XN_CPU_AMX,
    XN_CPU_SETS
} xn_cpu_isa;

typedef struct xn_cpu_set {
    const char *name; /* "avx2" */
    xn_cpu_isa isa;
    const xn_cpu_kernels *kernels;
    bool (*has)(void); /* whether this machine has it */
} xn_cpu_set;

/* The sets that this machine has, best first; NULL past the last. There is always one. */
const xn_cpu_set *xn_cpu_set_at(int index);
/* The one of that name; NULL where this machine or this build lacks it. */
const xn_cpu_set *xn_cpu_set_find(const char *name);

extern const xn_cpu_set xn_cpu_set_portable;
#if defined(__x86_64__)
extern const xn_cpu_set xn_cpu_set_amx, xn_cpu_set_vpopcnt, xn_cpu_set_avx512, xn_cpu_set_avx2;
#elif defined(__aarch64__)
extern const xn_cpu_set xn_cpu_set_neon;
#endif

#endif
