/* real_mma.cuh: instructions of real_mma.cu, and its tile in shared memory. fp16 and tf32 differ in
 * the matrix instruction only: both take 16 filters by 32 bytes and 8 pixels by 32 bytes, with the
 * same bytes in the same registers. */
#ifndef XN_CUDA_REAL_MMA_CUH
#define XN_CUDA_REAL_MMA_CUH

#include "ptx.cuh"
#include "real_mma.h"

/* acc[16 x 8] += a[16 x 32 bytes] * b[8 x 32 bytes]. With g = lane / 4 and t = lane % 4: acc[0..1]
 * are row g, columns 2t and 2t + 1, acc[2..3] the same of row g + 8. */
template <int PRECISION>
__device__ __forceinline__ void xn_mma_real(float (&acc)[4], const uint32_t (&a)[4],
                                            const uint32_t *b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if (PRECISION == XN_PRECISION_FP16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* Four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8, and
 * gets bytes 4 (l % 4) of row l / 4 of each. */
__device__ __forceinline__ void xn_load_matrices(uint32_t (&out)[4], uint32_t address) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
#endif
}

/* Where unit `chunk` (of 16 bytes) of a row is: rows of 128 bytes, the 8 chunks of each in an order
 * of its own, so that the same chunk of 8 neighbouring rows lies in 8 different places modulo 128
 * bytes and is read without bank conflicts. */
__device__ __forceinline__ uint32_t xn_mma_place(int32_t row, int32_t chunk) {
    return (uint32_t)(row * XN_CUDA_MMA_STEP_BYTES + ((chunk ^ (row & 7)) << 4));
}

/* What multiplies a filter's sums: acc * 2^exponent * factor + bias. `scale` is the product of the
 * first two where it is a normal number, so that one multiply-add is exact enough; else `normal` is
 * false, and double does it. */
struct xn_mma_filter {
    float scale, factor, bias;
    int32_t exponent : 31;
    uint32_t normal : 1;
};

__device__ __forceinline__ xn_mma_filter xn_mma_filter_of(float factor, float bias,
                                                          int32_t exponent) {
    xn_mma_filter f;
    f.scale = scalbnf(factor, exponent);
    f.factor = factor;
    f.bias = bias;
    f.exponent = exponent;
    f.normal = fabsf(f.scale) >= 0x1p-126f && fabsf(f.scale) < INFINITY;
    return f;
}

__device__ __noinline__ float xn_mma_value_exact(const xn_mma_filter &f, float acc) {
    return (float)(scalbn((double)acc, f.exponent) * f.factor + f.bias);
}

__device__ __forceinline__ float xn_mma_value(const xn_mma_filter &f, float acc) {
    const float value = fmaf(acc, f.scale, f.bias);
    return f.normal && fabsf(value) < INFINITY ? value : xn_mma_value_exact(f, acc);
}

/* A block of BM filters by BN pixels, WM by WN a warp. The stages of the pipeline, and in the same
 * place, once it has run, 16 filters of every warp's sums: rows 8 longer than they need be, so that
 * neighbouring ones begin in other banks. */
template <int BM, int BN, int WM, int WN, int STAGE_COUNT>
struct xn_mma_tile {
    static constexpr int FILTERS = BM, PIXELS = BN, WARP_FILTERS = WM, WARP_PIXELS = WN;
    static constexpr int STAGES = STAGE_COUNT;
    static constexpr int WARPS = BM / WM * (BN / WN), THREADS = WARPS * 32;
    static constexpr int PITCH = WN + 8;

    /* The first filter and pixel of a warp. */
    static __device__ __forceinline__ int32_t filter_of(int32_t warp) {
        return warp % (BM / WM) * WM;
    }
    static __device__ __forceinline__ int32_t pixel_of(int32_t warp) {
        return warp / (BM / WM) * WN;
    }

    struct stage {
        uint4 filters[BM][8], pixels[BN][8];
    };
    struct shared {
        union {
            stage stages[STAGE_COUNT];
            float sums[WARPS][16 * PITCH];
        };
        int32_t window[BN]; /* unit of the pixel's window at tap (0, 0), channel 0 */
        xn_mma_filter filters[BM];
    };
};

#endif
