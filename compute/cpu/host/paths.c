/* paths.c: the table of paths, with every instruction set, and the choice among them: of those that
 * fit a convolution, the one whose estimate is least. For other kinds of step there is one way. */
#include "path.h"

#include <string.h>

/* One line a path. */
#define WAYS(set, name)                                                                            \
    {"lookup/" name, &xn_cpu_lookup, &set}, {"bitgemm/" name, &xn_cpu_bitgemm, &set},              \
        {"real/" name, &xn_cpu_real, &set}, {                                                      \
        "direct/" name, &xn_cpu_direct, &set                                                       \
    }
static const xn_cpu_way ways[] = {
#if defined(__x86_64__)
    WAYS(xn_cpu_set_amx, "amx"),           WAYS(xn_cpu_set_vpopcnt, "avx512-vpopcnt"),
    WAYS(xn_cpu_set_avx512, "avx512"),     WAYS(xn_cpu_set_avx2, "avx2"),
#elif defined(__aarch64__)
    WAYS(xn_cpu_set_neon, "neon"),
#endif
    WAYS(xn_cpu_set_portable, "portable"),
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

/* By instruction set: steps that are no convolutions, stems, and top_k. */
#define OTHERS(set, name)                                                                          \
    {                                                                                              \
        {"ops/" name, &xn_cpu_ops, &set}, {"stem/" name, &xn_cpu_stem, &set}, {                    \
            "top_k/" name, &xn_cpu_top_k, &set                                                     \
        }                                                                                          \
    }
static const xn_cpu_way others[XN_CPU_SETS][3] = {
    [XN_CPU_PORTABLE] = OTHERS(xn_cpu_set_portable, "portable"),
#if defined(__x86_64__)
    [XN_CPU_AVX2] = OTHERS(xn_cpu_set_avx2, "avx2"),
    [XN_CPU_AVX512] = OTHERS(xn_cpu_set_avx512, "avx512"),
    [XN_CPU_VPOPCNT] = OTHERS(xn_cpu_set_vpopcnt, "avx512-vpopcnt"),
    [XN_CPU_AMX] = OTHERS(xn_cpu_set_amx, "amx"),
#elif defined(__aarch64__)
    [XN_CPU_NEON] = OTHERS(xn_cpu_set_neon, "neon"),
#endif
};

/* Not the ways of AMX with the kernels of the set before it. */
static bool is_another(const xn_cpu_way *way) {
    const void *const *kernels = way->path->kernels;
    return way->set->isa != XN_CPU_AMX || kernels[XN_CPU_AMX] != kernels[XN_CPU_VPOPCNT];
}

const xn_cpu_way *xn_cpu_way_at(int index) {
    for (int i = 0; i < WAY_COUNT; i++)
        if (ways[i].set->has() && is_another(&ways[i]) && index-- == 0)
            return &ways[i];
    return NULL;
}

const xn_cpu_way *xn_cpu_way_find(const char *name) {
    for (int i = 0; i < WAY_COUNT; i++)
        if (ways[i].set->has() && !strcmp(ways[i].name, name))
            return &ways[i];
    return NULL;
}

const xn_cpu_way *xn_cpu_way_choose(const xn_step *step, const xn_cpu_set *set) {
    const xn_cpu_way *best = NULL;
    double least = 0;
    for (int i = 0; i < WAY_COUNT; i++) {
        const xn_cpu_path *path = ways[i].path;
        if (ways[i].set != set || !path->fits(step))
            continue;
        double cost = path->cost_ns(step, path->kernels[set->isa]);
        if (!best || cost < least) {
            best = &ways[i];
            least = cost;
        }
    }
    return best;
}

const xn_cpu_way *xn_cpu_way_of_kind(int32_t kind, const xn_cpu_set *set) {
    return &others[set->isa][kind == XN_STEP_STEM ? 1 : kind == XN_STEP_TOP_K ? 2 : 0];
}
