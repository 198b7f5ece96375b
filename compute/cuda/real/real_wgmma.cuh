/* real_wgmma.cuh: the matrix instruction of a warpgroup (128 threads) on sm_90a in fp16 and tf32.
 * It reads what mma.sync reads by ldmatrix, from the same place in shared memory: rows of 128 bytes
 * in the order of xn_mma_place, which is its 128-byte swizzle. */
#ifndef XN_CUDA_REAL_WGMMA_CUH
#define XN_CUDA_REAL_WGMMA_CUH

#include "real_mma.h"
#include "wgmma_ptx.cuh"

#if XN_HAS_WGMMA

/* An operand of 32 bytes a row: 8 rows of 128 bytes are 1024 bytes, at a multiple of which the
 * first row begins; the next 32 bytes of every row are 32 bytes on. */
__device__ __forceinline__ uint64_t xn_swizzled_matrix(uint32_t start) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | start >> 4;
}

#define XN_WGMMA_NAMES_128                                                                         \
    XN_WGMMA_NAMES_64                                                                              \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81"   \
    ", %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99"   \
    ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114"   \
    ", %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define XN_8(i)                                                                                    \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define XN_32(i) XN_8(i), XN_8(i + 8), XN_8(i + 16), XN_8(i + 24)
#define XN_SUMS_32 XN_32(0)
#define XN_SUMS_64 XN_SUMS_32, XN_32(32)
#define XN_SUMS_128 XN_SUMS_64, XN_32(64), XN_32(96)

/* d[64 x N] += a[64 x 32 bytes] * b[N x 32 bytes], by shared addresses. Warp w, lane 4g + t has of
 * rows 16w + g (h = 0) and 16w + 8 + g (h = 1) the columns 8j + 2t + e in d[4j + 2h + e]. */
template <int PRECISION, int N>
struct xn_wgmma_real;

/* SUMS: registers of a thread; A and B: the operands after them. */
#define XN_WGMMA_REAL(PRECISION, N, K, TYPES, SUMS, A, B, TAIL)                                    \
    template <>                                                                                    \
    struct xn_wgmma_real<PRECISION, N> {                                                           \
        static __device__ __forceinline__ void run(float *d, uint32_t a, uint32_t b) {             \
            asm volatile("{ .reg .pred add; setp.eq.u32 add, 0, 0;"                                \
                         " wgmma.mma_async.sync.aligned.m64n" #N K TYPES                           \
                         " {" XN_WGMMA_NAMES_##SUMS "}, " A ", " B ", add, 1, 1" TAIL "; }"        \
                         : XN_SUMS_##SUMS                                                          \
                         : "l"(xn_swizzled_matrix(a)), "l"(xn_swizzled_matrix(b)));                \
        }                                                                                          \
    };
#define XN_WGMMA_REALS(N, SUMS, A, B)                                                              \
    XN_WGMMA_REAL(XN_PRECISION_FP16, N, "k16", ".f32.f16.f16", SUMS, A, B, ", 0, 0")               \
    XN_WGMMA_REAL(XN_PRECISION_TF32, N, "k8", ".f32.tf32.tf32", SUMS, A, B, "")

XN_WGMMA_REALS(64, 32, "%32", "%33")
XN_WGMMA_REALS(128, 64, "%64", "%65")
XN_WGMMA_REALS(256, 128, "%128", "%129")

#undef XN_8
#undef XN_32
#undef XN_SUMS_32
#undef XN_SUMS_64
#undef XN_SUMS_128
#undef XN_WGMMA_REAL
#undef XN_WGMMA_REALS

#endif
#endif
