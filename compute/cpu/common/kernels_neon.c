/* kernels_neon.c: the kernels for arm64, where NEON is always there. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels.h"

#define KERNELS xn_cpu_kernels_neon
#define VECTOR_BYTES 16
#define FROM_FP16(h) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)))
#define TO_FP16(h, v) vst1_u16(h, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(v))))

#include "kernels_body.h"
#endif
