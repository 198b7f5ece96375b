/* kernels_portable.c: the kernels for any machine, with what the compiler makes of 16-byte vectors,
 * and the choice at run time. Bits are counted by the usual sums of ever wider fields, stopped at
 * bytes: 31 words of at most 8 a byte fit before they must be folded. */
#include "kernels.h"

#define KERNELS xn_cpu_kernels_portable
#define KERNELS_NAME "portable"
#define VECTOR_BYTES 16
#define FOLD_WORDS 31
#define WORD_COST 52
#define PAIRS(x) ((x) - ((x) >> 1 & 0x55555555u))
#define NIBBLES(x) (((x)&0x33333333u) + ((x) >> 2 & 0x33333333u))
#define BYTES(x) (((x) + ((x) >> 4)) & 0x0f0f0f0fu)
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    x = PAIRS(x);
    x = NIBBLES(x);
    return BYTES(x);
}

#include "kernels_body.h"

bool xn_cpu_kernels_run(const xn_cpu_kernels *kernels) {
#if defined(__x86_64__)
    if (kernels == &xn_cpu_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vpopcntdq");
    if (kernels == &xn_cpu_kernels_avx2)
        return __builtin_cpu_supports("avx2");
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
