/* cuda_peak.cuh: what the chip can do of 1-bit products, and so what no kernel here passes: matrix
 * instructions alone, on random bits that stay in registers (mma.sync) or in shared memory (wgmma),
 * from every multiprocessor. An operation is a product or an addition: 2 a bit. */
#ifndef XN_BENCH_CUDA_PEAK_CUH
#define XN_BENCH_CUDA_PEAK_CUH

#include "cuda_timing.cuh"
#include "wgmma_ptx.cuh"

#include <stdint.h>

namespace peak {

enum { ITERATIONS = 2000, BLOCKS = 2, SHARED_WORDS = (64 + 256) * 8 };

#define PEAK_8(i)                                                                                  \
    "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]),    \
        "+r"(c[i + 6]), "+r"(c[i + 7])
#define PEAK_32(i) PEAK_8(i), PEAK_8(i + 8), PEAK_8(i + 16), PEAK_8(i + 24)

/* One warpgroup a block: 64 x 256 counts of 256 bits an instruction. */
static __global__ void __launch_bounds__(128) wgmma_b1(const uint32_t *in, int32_t *out) {
#if XN_HAS_WGMMA
    __shared__ alignas(128) uint32_t operands[SHARED_WORDS];
    for (int i = threadIdx.x; i < SHARED_WORDS; i += 128)
        operands[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    int32_t c[128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        c[i] = 0;
    /* core matrices of 8 rows x 16 bytes: 128 bytes to the next along k, 256 along rows */
    const uint64_t layout = (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    const uint32_t a = xn_shared_address(operands), b = a + 64 * 32;
    const uint64_t a_matrix = layout | (a >> 4 & 0x3fff), b_matrix = layout | (b >> 4 & 0x3fff);
    for (int i = 0; i < ITERATIONS; i++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile(
            "{ .reg .pred add; setp.eq.b32 add, 0, 0; "
            "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
            "%111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
            "%126, %127"
            "}, %128, %129, add; }"
            : PEAK_32(0), PEAK_32(32), PEAK_32(64), PEAK_32(96)
            : "l"(a_matrix), "l"(b_matrix));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (i % 4 == 3)
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int32_t sum = 0;
#pragma unroll
    for (int i = 0; i < 128; i++)
        sum += c[i];
    out[blockIdx.x * 128 + threadIdx.x] = sum;
#else
    (void)in, (void)out;
#endif
}

/* 8 warps a block, 8 independent chains a warp: 16 x 8 counts of 256 bits an instruction. */
static __global__ void __launch_bounds__(256) mma_b1(const uint32_t *in, int32_t *out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t w[6];
    int32_t c[8][4] = {};
    for (int i = 0; i < 6; i++)
        w[i] = in[threadIdx.x * 6 + i];
    for (int k = 0; k < ITERATIONS; k++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+r"(c[j][0]), "+r"(c[j][1]), "+r"(c[j][2]), "+r"(c[j][3])
                         : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]));
    int32_t sum = 0;
    for (int j = 0; j < 8; j++)
        sum += c[j][0] + c[j][1] + c[j][2] + c[j][3];
    out[blockIdx.x * 256 + threadIdx.x] = sum;
#else
    (void)in, (void)out;
#endif
}

/* Tops of both; 0 where the chip has not got it. */
struct rates {
    double wgmma, mma;
};

/* Without wgmma the kernel is empty, and has no shared memory. */
static bool has_wgmma() {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, (const void *)wgmma_b1));
    return attributes.sharedSizeBytes > 0;
}

static rates measure() {
    const cudaStream_t stream = xn_bench_cuda_stream();
    const size_t words = 4096;
    std::vector<uint32_t> random(words);
    cudaDeviceProp chip;
    uint32_t *in;
    int32_t *out;
    rates r = {};
    uint64_t state = 1;
    CHECK(cudaGetDeviceProperties(&chip, 0));
    const int blocks = BLOCKS * chip.multiProcessorCount;
    for (uint32_t &w : random) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        w = (uint32_t)(state >> 32);
    }
    CHECK(cudaMalloc(&in, words * 4));
    CHECK(cudaMalloc(&out, (size_t)blocks * 2 * 256 * 4));
    CHECK(cudaMemcpy(in, random.data(), words * 4, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    if (has_wgmma()) {
        replayed timed(
            [=] {
                wgmma_b1<<<blocks, 128, 0, stream>>>(in, out);
                CHECK(cudaGetLastError());
            },
            0);
        r.wgmma = 2.0 * 64 * 256 * 256 * ITERATIONS * blocks / timed.median_us(9) / 1e6;
    }
    if (chip.major >= 8) {
        replayed timed(
            [=] {
                mma_b1<<<2 * blocks, 256, 0, stream>>>(in, out);
                CHECK(cudaGetLastError());
            },
            0);
        r.mma = 2.0 * 16 * 8 * 256 * 8 * 8 * ITERATIONS * 2 * blocks / timed.median_us(9) / 1e6;
    }
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return r;
}

} // namespace peak

#endif
