/* kernels_portable.c: the kernels for any machine, with what the compiler makes of 16-byte vectors,
 * and the choice at run time. */
#include "few_kernels.h"
#include "kernels.h"
#include "real_kernels.h"

#define KERNELS xn_cpu_kernels_portable
#define KERNELS_NAME "portable"
#define KERNELS_FEW &xn_cpu_few_portable
#define KERNELS_REAL &xn_cpu_real_portable
#define VECTOR_BYTES 16
#define WORD_COST 52

#include "kernels_body.h"

bool xn_cpu_kernels_run(const xn_cpu_kernels *kernels) {
#if defined(__x86_64__)
    if (kernels == &xn_cpu_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vpopcntdq");
    if (kernels == &xn_cpu_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return kernels == &xn_cpu_kernels_portable;
}

const xn_cpu_kernels *xn_cpu_kernels_choose(void) {
#if defined(__x86_64__)
    if (xn_cpu_kernels_run(&xn_cpu_kernels_avx512))
        return &xn_cpu_kernels_avx512;
    if (xn_cpu_kernels_run(&xn_cpu_kernels_avx2))
        return &xn_cpu_kernels_avx2;
#endif
    return &xn_cpu_kernels_portable;
}
