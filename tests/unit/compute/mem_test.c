/* Host memory: alignment, zeroes, overflow, the hook that fails allocations. */
#include "xn_mem.h"
#include "xn_test.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

START_TEST(every_size_is_aligned_and_writable) {
    static const size_t sizes[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, 4096, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *memory = xn_mem_alloc(sizes[i]);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % XN_MEM_ALIGNMENT, 0);
        memset(memory, 0x5a, sizes[i]);
        xn_mem_free(memory);
    }
    xn_mem_free(NULL);
}
END_TEST

START_TEST(zalloc_zeroes_and_checks_the_product) {
    for (int round = 0; round < 8; round++) { /* reused memory is zeroed too */
        unsigned char *memory = xn_mem_zalloc(33, 7);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % XN_MEM_ALIGNMENT, 0);
        for (int i = 0; i < 33 * 7; i++)
            ck_assert_msg(memory[i] == 0, "byte %d is %d", i, memory[i]);
        memset(memory, 0xff, 33 * 7);
        xn_mem_free(memory);
    }
    void *empty = xn_mem_zalloc(0, 8);
    ck_assert_ptr_nonnull(empty);
    xn_mem_free(empty);
    ck_assert_ptr_null(xn_mem_zalloc(SIZE_MAX, 2));
    ck_assert_ptr_null(xn_mem_zalloc(SIZE_MAX / 2 + 1, 2));
    ck_assert_ptr_null(xn_mem_zalloc((size_t)1 << 33, (size_t)1 << 33));
}
END_TEST

typedef struct record {
    int calls, fail_at;
    size_t sizes[8];
} record;

static bool recording(void *context, size_t bytes) {
    record *r = context;
    if (r->calls < 8)
        r->sizes[r->calls] = bytes;
    return ++r->calls != r->fail_at;
}

START_TEST(hook_sees_and_fails_each_kind) {
    record r = {.fail_at = 2};
    xn_mem_set_hook(recording, &r);
    void *first = xn_mem_alloc(10), *second = xn_mem_zalloc(3, 5), *third = xn_mem_alloc(4);
    r.fail_at = 4;
    void *fourth = xn_mem_alloc(4);
    xn_mem_set_hook(NULL, NULL);
    void *after = xn_mem_alloc(1);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(second);
    ck_assert_ptr_nonnull(third);
    ck_assert_ptr_null(fourth);
    ck_assert_ptr_nonnull(after);
    ck_assert_int_eq(r.calls, 4);
    ck_assert_uint_eq(r.sizes[0], 10);
    ck_assert_uint_eq(r.sizes[1], 15);
    ck_assert_uint_eq(r.sizes[2], 4);
    xn_mem_free(first);
    xn_mem_free(third);
    xn_mem_free(after);
}
END_TEST

/* ---- a limit on the address space ---- */

static int shortages;

static void count_shortage(void) {
    shortages++;
}

START_TEST(shortage_is_told_and_nothing_is_tried_again) {
    record r = {.fail_at = 2};
    shortages = 0;
    xn_mem_set_hook(recording, &r);
    xn_mem_set_shortage(count_shortage);
    void *first = xn_mem_alloc(10);
    ck_assert_int_eq(shortages, 0);
    void *second = xn_mem_alloc(10);
    r.fail_at = 3;
    void *third = xn_mem_map(4096);
    xn_mem_set_shortage(NULL);
    xn_mem_set_hook(NULL, NULL);
    ck_assert(first && !second && !third);
    ck_assert_int_eq(shortages, 2);
    ck_assert_int_eq(r.calls, 3);
    xn_mem_free(first);
}
END_TEST

START_TEST(what_a_thread_holds) {
    static const size_t sizes[] = {1, 100, 5000, 3 << 20};
    const int64_t before = xn_mem_held();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory = xn_mem_alloc(sizes[i]);
        ck_assert_int_ge(xn_mem_held() - before, (int64_t)sizes[i]);
        ck_assert_int_le(xn_mem_held() - before, (int64_t)sizes[i] + 8192);
        xn_mem_free(memory);
        ck_assert_int_eq(xn_mem_held(), before);
    }
}
END_TEST

/* An emulator may take the limit and not keep to it: then there is nothing to test. */
static bool limit_holds(void) {
    const size_t more = (size_t)200 << 20;
    void *memory = mmap(NULL, more, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED || munmap(memory, more);
}

/* Large blocks end before all is taken, small ones go on. */
START_TEST(a_limit_leaves_room_for_the_small) {
    enum { LARGE = 4 << 20, MOST = 64 };
    struct rlimit before, limit;
    void *blocks[MOST];
    int count = 0;
    long pages = 0;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    ck_assert(!getrlimit(RLIMIT_AS, &before));
    limit = before;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (100 << 20);
    ck_assert(!setrlimit(RLIMIT_AS, &limit));
    if (!limit_holds()) {
        setrlimit(RLIMIT_AS, &before);
        return;
    }
    while (count < MOST && (blocks[count] = xn_mem_alloc(LARGE)) != NULL)
        count++;
    void *more = malloc(XN_MEM_HEADROOM_BYTES / 2); /* what a library may ask for */
    free(more);
    setrlimit(RLIMIT_AS, &before);
    ck_assert_int_gt(count, 4);
    ck_assert_int_lt(count, (100 - 16) / 4 + 1);
    ck_assert_ptr_nonnull(more);
    while (count)
        xn_mem_free(blocks[--count]);
}
END_TEST

START_TEST(checked_arithmetic) {
    size_t s = 7;
    int64_t i = 7;
    ck_assert(xn_mul_size(1u << 20, 1u << 20, &s) && s == (size_t)1 << 40);
    ck_assert(!xn_mul_size(SIZE_MAX, 2, &(size_t){0}));
    ck_assert(xn_add_size(SIZE_MAX - 1, 1, &s) && s == SIZE_MAX);
    ck_assert(!xn_add_size(SIZE_MAX, 1, &(size_t){0}));
    ck_assert(xn_mul_i64(INT64_MAX, 1, &i) && i == INT64_MAX);
    ck_assert(!xn_mul_i64(INT64_MAX, 2, &(int64_t){0}));
    ck_assert(!xn_mul_i64(INT64_MIN, -1, &(int64_t){0}));
}
END_TEST

XN_SUITE(mem) {
    Suite *s = suite_create("mem");
    TCase *t = xn_test_case(s, "mem", 60);
    tcase_add_test(t, every_size_is_aligned_and_writable);
    tcase_add_test(t, zalloc_zeroes_and_checks_the_product);
    tcase_add_test(t, hook_sees_and_fails_each_kind);
    tcase_add_test(t, shortage_is_told_and_nothing_is_tried_again);
    tcase_add_test(t, what_a_thread_holds);
    if (!XN_TEST_SANITIZED)
        tcase_add_test(t, a_limit_leaves_room_for_the_small);
    tcase_add_test(t, checked_arithmetic);
    return s;
}
