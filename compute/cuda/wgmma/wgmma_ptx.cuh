/* wgmma_ptx.cuh: what the wgmma kernels need of sm_90a: barriers in shared memory that count bytes,
 * bulk copies that complete on them, and the matrix instruction of a warpgroup (128 threads). Code
 * for other chips has none of it (XN_HAS_WGMMA is 0). Shared addresses are 32 bits wide here. */
#ifndef XN_CUDA_WGMMA_PTX_CUH
#define XN_CUDA_WGMMA_PTX_CUH

#include "ptx.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define XN_HAS_WGMMA 1
#else
#define XN_HAS_WGMMA 0
#endif

#if XN_HAS_WGMMA

/* ---- barriers, by shared address; more in ptx.cuh ---- */

__device__ __forceinline__ void xn_mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* One lane of the warp says it for all. */
__device__ __forceinline__ void xn_warp_arrives(int32_t lane, uint32_t barrier) {
    __syncwarp();
    if (lane == 0)
        xn_mbarrier_arrive(barrier);
}

/* A barrier of several that lie one after the other. */
__device__ __forceinline__ uint32_t xn_barrier_at(uint32_t barriers, int32_t index) {
    return barriers + (uint32_t)index * 8;
}

/* Barrier `id` (1 to 15) among `threads` threads of the block. */
__device__ __forceinline__ void xn_named_barrier(int32_t id, int32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* All warps of a warpgroup take registers from what the block was launched with and others of its
 * warpgroups gave back, and wait until there are as many. */
template <int REGISTERS>
__device__ __forceinline__ void xn_more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void xn_fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- copies ---- */

/* `bytes` (a multiple of 16) to a shared address; they count on the barrier. */
__device__ __forceinline__ void xn_bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                             uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Four 8 x 8 matrices of 16-bit values: thread 4g + t gives of row g the columns 2t and 2t + 1 of
 * matrix n in v[n]; row r of matrix n goes to the 16 bytes whose address thread 8n + r gives. */
__device__ __forceinline__ void xn_store_matrices(uint32_t to, const uint32_t (&v)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* ---- the matrix instruction ---- */

/* An operand of 256 bits a row: 8 rows of 16 bytes lie one after the other (a core matrix), the
 * next 8 rows `rows_8` bytes on, the second 128 bits of each row `k_128` bytes on. The start may be
 * any multiple of 16, so a window slides along rows that overlap. The low half of the descriptor
 * has start and k_128 and may be added to: a start further on. */
__host__ __device__ __forceinline__ uint32_t xn_matrix_low(uint32_t start, uint32_t k_128) {
    return start >> 4 | k_128 >> 4 << 16;
}
__device__ __forceinline__ uint64_t xn_matrix(uint32_t low, uint32_t rows_8) {
    return (uint64_t)(rows_8 >> 4) << 32 | low;
}

__device__ __forceinline__ void xn_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void xn_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups are under way. */
template <int PENDING>
__device__ __forceinline__ void xn_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* d[64 x N] = (add ? d : 0) + popc(a[64 x 256 bits] and b[N x 256 bits]). Thread (warp w, lane
 * 4g + t) has of rows 16w + g (h = 0) and 16w + 8 + g (h = 1) the columns 8j + 2t + e in
 * d[4j + 2h + e]. */
template <int N>
struct xn_wgmma;

/* The counts as the instruction names them, and as the compiler gives them. */
#define XN_WGMMA_NAMES_56                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                         \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49"   \
    ", %50, %51, %52, %53, %54, %55"
#define XN_WGMMA_NAMES_64 XN_WGMMA_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define XN_WGMMA_8(i)                                                                              \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]),    \
        "+r"(d[i + 6]), "+r"(d[i + 7])
#define XN_WGMMA_56                                                                                \
    XN_WGMMA_8(0), XN_WGMMA_8(8), XN_WGMMA_8(16), XN_WGMMA_8(24), XN_WGMMA_8(32), XN_WGMMA_8(40),  \
        XN_WGMMA_8(48)
#define XN_WGMMA_64 XN_WGMMA_56, XN_WGMMA_8(56)

#define XN_WGMMA(N, COUNTS, A, B, ADD)                                                             \
    template <>                                                                                    \
    struct xn_wgmma<N> {                                                                           \
        static __device__ __forceinline__ void run(int32_t *d, uint64_t a, uint64_t b,             \
                                                   int32_t add) {                                  \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k256.s32.b1.b1.and.popc "         \
                         "{" XN_WGMMA_NAMES_##COUNTS "}, " A ", " B ", p; }"                       \
                         : XN_WGMMA_##COUNTS                                                       \
                         : "l"(a), "l"(b), "r"(add));                                              \
        }                                                                                          \
    };
XN_WGMMA(112, 56, "%56", "%57", "%58")
XN_WGMMA(128, 64, "%64", "%65", "%66")

#endif
#endif
