/* cu_memory.h: device memory that a test owns until it goes. */
#ifndef CU_MEMORY_H
#define CU_MEMORY_H

#include <check.h>
#include <cuda_runtime.h>
#include <vector>

#define CUDA(call) ck_assert_msg((call) == cudaSuccess, #call)

struct cu_memory {
    std::vector<void *> all;

    /* Of bytes 0xff: NaN as reals. */
    void *room(size_t bytes) {
        void *memory = NULL;
        CUDA(cudaMalloc(&memory, bytes + 16));
        CUDA(cudaMemset(memory, 0xff, bytes + 16));
        all.push_back(memory);
        return memory;
    }
    template <typename T>
    T *copy(const std::vector<T> &from) {
        T *memory = (T *)room(from.size() * sizeof(T));
        CUDA(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
        return memory;
    }
    ~cu_memory() {
        for (void *memory : all)
            (void)cudaFree(memory);
    }
};

#endif
