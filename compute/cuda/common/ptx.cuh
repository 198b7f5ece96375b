/* ptx.cuh: the instructions that CUDA C++ has no name for. Kernels that use those of sm_80 and
 * later are launched there only; for older chips they compile to a trap. */
#ifndef XN_CUDA_PTX_CUH
#define XN_CUDA_PTX_CUH

#include <stdint.h>

/* Shared addresses are 32 bits wide. */
__device__ __forceinline__ uint32_t xn_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* A load of read-only data that stays where it is written. */
__device__ __forceinline__ uint32_t xn_load_4(const void *from) {
    uint32_t value;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(from));
    return value;
}

/* Loads of read-only data that happen only when `valid`, without a branch; else *out stays. */
__device__ __forceinline__ void xn_load_16_if(uint32_t *out, const void *from, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0;"
                 " @p ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4]; }"
                 : "+r"(out[0]), "+r"(out[1]), "+r"(out[2]), "+r"(out[3])
                 : "l"(from), "r"((uint32_t)valid));
}
__device__ __forceinline__ void xn_load_8_if(uint32_t *out, const void *from, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.nc.v2.u32 {%0,%1}, [%2]; }"
                 : "+r"(out[0]), "+r"(out[1])
                 : "l"(from), "r"((uint32_t)valid));
}
__device__ __forceinline__ void xn_load_4_if(uint32_t *out, const void *from, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u32 %0, [%1]; }"
                 : "+r"(out[0])
                 : "l"(from), "r"((uint32_t)valid));
}
__device__ __forceinline__ void xn_load_2_if(uint32_t *out, const void *from, bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
                 : "+r"(out[0])
                 : "l"(from), "r"((uint32_t)valid));
}

template <int BYTES>
__device__ __forceinline__ void xn_load_if(uint32_t *out, const void *from, bool valid) {
    if constexpr (BYTES == 16)
        xn_load_16_if(out, from, valid);
    else if constexpr (BYTES == 8)
        xn_load_8_if(out, from, valid);
    else if constexpr (BYTES == 4)
        xn_load_4_if(out, from, valid);
    else
        xn_load_2_if(out, from, valid);
}

/* Stores likewise. */
__device__ __forceinline__ void xn_store_words_if(void *to, const uint32_t (&v)[4], bool valid) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0;"
                 " @p st.global.v4.u32 [%0], {%1,%2,%3,%4}; }" ::"l"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"((uint32_t)valid)
                 : "memory");
}
__device__ __forceinline__ void xn_store_words_if(void *to, const uint32_t (&v)[2], bool valid) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.u32 [%0], {%1,%2}; }" ::"l"(to),
        "r"(v[0]), "r"(v[1]), "r"((uint32_t)valid)
        : "memory");
}

/* Byte n of the result is the byte of {high, low} that nibble n of select names; the highest bit of
 * each nibble must be clear. */
__device__ __forceinline__ uint32_t xn_permute(uint32_t low, uint32_t high, uint32_t select) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(select));
    return bytes;
}

/* acc[16 x 8] += popc(a[16 x 256 bits] and b[8 x 256 bits]), by one warp. With g = lane / 4 and
 * t = lane % 4: a[0], a[2] are 32-bit blocks t and t + 4 of row g, a[1], a[3] those of row g + 8;
 * b[0], b[1] are blocks t and t + 4 of column g; acc[0..1] are row g, columns 2t and 2t + 1,
 * acc[2..3] the same of row g + 8. Which bits a block holds is free, as long as a and b agree. */
__device__ __forceinline__ void xn_mma_and_popc(int32_t (&acc)[4], const uint32_t (&a)[4],
                                                const uint32_t *b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* The same places with products of fp16 or tf32: acc[16 x 8] += a[16 x 32 bytes] * b[8 x 32 bytes].
 */
template <bool FP16>
__device__ __forceinline__ void xn_mma_real(float (&acc)[4], const uint32_t (&a)[4],
                                            const uint32_t *b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if (FP16)
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

/* The same, turned: a lane gets of each matrix rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4. */
__device__ __forceinline__ void xn_load_matrices_turned(uint32_t (&out)[4], uint32_t address) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
#endif
}

/* Starts copying BYTES (4, 8 or 16, both addresses aligned to it) from global memory to an address
 * in the shared window; `bytes` is BYTES, or 0: then nothing is read and zeros are written. */
template <int BYTES>
__device__ __forceinline__ void xn_copy_bytes_at(uint32_t to, const void *global, uint32_t bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                     "n"(BYTES), "r"(bytes)
                     : "memory");
#else
    __trap();
#endif
}

template <int BYTES>
__device__ __forceinline__ void xn_copy_async_at(uint32_t to, const void *global, bool valid) {
    xn_copy_bytes_at<BYTES>(to, global, valid ? BYTES : 0);
}

/* The same by a pointer to shared memory. */
template <int BYTES>
__device__ __forceinline__ void xn_copy_async(void *shared, const void *global, bool valid) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    xn_copy_async_at<BYTES>(xn_shared_address(shared), global, valid);
#else
    __trap();
#endif
}

/* As xn_copy_bytes_at, for chips of any kind, which read at once where they cannot copy in the
 * background. */
template <int BYTES>
__device__ __forceinline__ void xn_copy_ahead(void *shared, const void *global, uint32_t bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    xn_copy_bytes_at<BYTES>(xn_shared_address(shared), global, bytes);
#else
#pragma unroll
    for (int w = 0; w < BYTES / 4; w++)
        ((uint32_t *)shared)[w] = bytes ? ((const uint32_t *)global)[w] : 0u;
#endif
}

/* Closes a group of the copies this thread started. */
__device__ __forceinline__ void xn_copy_commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until all but the last PENDING groups of this thread have arrived. */
template <int PENDING>
__device__ __forceinline__ void xn_copy_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/* ---- barriers in shared memory that count bytes, by shared address: sm_90 and later ---- */

/* `arrivals` complete a phase, together with all bytes announced in it. */
__device__ __forceinline__ void xn_mbarrier_init(uint32_t barrier, uint32_t arrivals) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
#endif
}

/* Makes initialised barriers visible to bulk copies. */
__device__ __forceinline__ void xn_mbarrier_init_fence() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* Arrives, and announces bytes that copies will bring. */
__device__ __forceinline__ void xn_mbarrier_expect(uint32_t barrier, uint32_t bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

/* Waits until the phase of that parity is complete. Scope and order are the defaults: acquire at
 * cluster scope would empty the L1 cache at every wait. */
__device__ __forceinline__ void xn_mbarrier_wait(uint32_t barrier, uint32_t parity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#endif
}

/* A kernel launched to overlap the one ahead of it in the stream (launch.cuh): waits until that one
 * has ended, and its writes are visible. Before that it may read what no kernel writes. */
__device__ __forceinline__ void xn_wait_for_previous_kernel() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel's blocks start in the room this one leaves, once all blocks are here. */
__device__ __forceinline__ void xn_let_next_kernel_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
