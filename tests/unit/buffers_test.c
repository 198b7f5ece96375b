/* buffers_test.c: the buffer pool over plain memory and over a device whose allocator counts. */
#include "buffers.h"
#include "clock.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

/* A device made of nothing but an allocator with a limit. */
static struct fake {
    atomic_size_t live, allocated, freed; /* buffers; calls */
    atomic_long left;                     /* allocations that still succeed */
    atomic_size_t last_bytes;             /* of the newest */
} fake;

static void *fake_alloc(xn_device *device, size_t bytes) {
    ck_assert_ptr_eq((void *)device, (void *)&fake);
    if (atomic_fetch_sub(&fake.left, 1) <= 0)
        return NULL;
    fake.allocated++;
    fake.live++;
    fake.last_bytes = bytes;
    return xn_mem_alloc(bytes);
}

static void fake_free(xn_device *device, void *memory) {
    ck_assert_ptr_eq((void *)device, (void *)&fake);
    fake.freed++;
    fake.live--;
    xn_mem_free(memory);
}

static const xn_backend fake_backend = {
    .name = "fake", .host_alloc = fake_alloc, .host_free = fake_free};

static xn_buffers *make(size_t keep_bytes) {
    xn_buffers *buffers = NULL;
    xn_error error = {0};
    memset(&fake, 0, sizeof fake);
    fake.left = 1000000;
    ck_assert_int_eq(
        xn_buffers_create(&fake_backend, (xn_device *)(void *)&fake, keep_bytes, &buffers, &error),
        XN_OK);
    return buffers;
}

static size_t class_size(xn_buffers *buffers, size_t bytes) {
    void *buffer = xn_buffers_get(buffers, bytes);
    ck_assert_ptr_nonnull(buffer);
    size_t got = fake.last_bytes;
    xn_buffers_put(buffers, buffer, bytes);
    return got;
}

START_TEST(class_sizes) {
    static const struct {
        size_t bytes, size;
    } cases[] = {{0, 4 * KIB},
                 {1, 4 * KIB},
                 {4 * KIB, 4 * KIB},
                 {4 * KIB + 1, 8 * KIB},
                 {8 * KIB, 8 * KIB},
                 {65 * KIB, 80 * KIB},
                 {512 * KIB + 1, 640 * KIB},
                 {MIB, MIB},
                 {MIB + 1, MIB + 256 * KIB},
                 {MIB + 256 * KIB, MIB + 256 * KIB},
                 {MIB + 256 * KIB + 1, MIB + 512 * KIB},
                 {MIB + 768 * KIB + 1, 2 * MIB},
                 {2 * MIB, 2 * MIB},
                 {2 * MIB + 1, 2 * MIB + 512 * KIB},
                 {3 * MIB + 512 * KIB + 1, 4 * MIB},
                 {16 * MIB + 1, 20 * MIB}};
    xn_buffers *buffers = make(0); /* keeps nothing, so that each get allocates */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_uint_eq(class_size(buffers, cases[i].bytes), cases[i].size);
    ck_assert_uint_eq(fake.live, 0);
    xn_buffers_free(buffers);
}
END_TEST

/* Random sizes, and those around every class border: large enough, wasting at most what the
 * classes promise, and never smaller for a larger size. */
START_TEST(classes_hold_and_bound_waste) {
    xn_rng rng = {xn_test_seed()};
    xn_buffers *buffers = make(0);
    for (int round = 0; round < 3000; round++) {
        size_t bytes = (size_t)1 << xn_rng_below(&rng, 25);
        bytes += xn_rng_below(&rng, 4) ? xn_rng_below(&rng, bytes) : (size_t)(round % 3) - 1;
        size_t size = class_size(buffers, bytes), smaller = class_size(buffers, bytes / 2 + 1);
        ck_assert_msg(size >= bytes && smaller <= size, "seed %llu: %zu bytes in %zu",
                      (unsigned long long)xn_test_seed(), bytes, size);
        size_t most = bytes <= 4 * KIB    ? 4 * KIB
                      : bytes <= 64 * KIB ? 2 * bytes
                                          : bytes + bytes / 4;
        ck_assert_msg(size <= most, "seed %llu: %zu bytes in %zu",
                      (unsigned long long)xn_test_seed(), bytes, size);
    }
    xn_buffers_free(buffers);
}
END_TEST

START_TEST(impossible_sizes) {
    xn_buffers *buffers = make(MIB);
    ck_assert_ptr_null(xn_buffers_get(buffers, SIZE_MAX));
    ck_assert_ptr_null(xn_buffers_get(buffers, ((size_t)1 << 46) + 1));
    ck_assert_uint_eq(fake.allocated, 0);
    xn_buffers_put(buffers, NULL, 10);
    xn_buffers_free(buffers);
    xn_buffers_free(NULL);
}
END_TEST

START_TEST(the_steady_state_allocates_nothing) {
    xn_buffers *buffers = make(64 * MIB);
    for (int round = 0; round < 100; round++) {
        void *a = xn_buffers_get(buffers, 50000), *b = xn_buffers_get(buffers, 60000),
             *c = xn_buffers_get(buffers, 3 * MIB);
        ck_assert(a && b && c && a != b);
        memset(a, 1, 50000);
        memset(b, 2, 60000);
        memset(c, 3, 3 * MIB);
        xn_buffers_put(buffers, b, 60000);
        xn_buffers_put(buffers, c, 3 * MIB);
        xn_buffers_put(buffers, a, 50000);
    }
    ck_assert_uint_eq(fake.allocated, 3);
    ck_assert_uint_eq(fake.freed, 0);
    xn_buffers_free(buffers);
    ck_assert_uint_eq(fake.live, 0);
}
END_TEST

START_TEST(the_warmest_buffer_comes_first) {
    xn_buffers *buffers = make(MIB);
    void *a = xn_buffers_get(buffers, 100), *b = xn_buffers_get(buffers, 100);
    xn_buffers_put(buffers, a, 100);
    xn_buffers_put(buffers, b, 100);
    ck_assert_ptr_eq(xn_buffers_get(buffers, 100), b);
    ck_assert_ptr_eq(xn_buffers_get(buffers, 100), a);
    xn_buffers_put(buffers, a, 100);
    xn_buffers_put(buffers, b, 100);
    xn_buffers_free(buffers);
}
END_TEST

/* 64 KiB for what is held and kept: what is held leaves the rest for what is kept, and of that the
 * one returned longest ago leaves first, whatever its class. */
START_TEST(what_is_held_and_kept_is_bounded_and_the_oldest_leaves) {
    xn_buffers *buffers = make(64 * KIB);
    void *small[6], *mid, *big, *more;
    for (int i = 0; i < 6; i++)
        small[i] = xn_buffers_get(buffers, 4096);
    mid = xn_buffers_get(buffers, 8192);
    big = xn_buffers_get(buffers, 32 * KIB);
    xn_buffers_put(buffers, mid, 8192);
    for (int i = 0; i < 6; i++)
        xn_buffers_put(buffers, small[i], 4096);
    ck_assert_uint_eq(fake.freed, 0);         /* all 64 KiB are there */
    more = xn_buffers_get(buffers, 16 * KIB); /* mid and two small ones leave for it */
    ck_assert_uint_eq(fake.freed, 3);
    for (int i = 5; i >= 2; i--)
        ck_assert_ptr_eq(xn_buffers_get(buffers, 1), small[i]);
    for (int i = 2; i < 6; i++)
        xn_buffers_put(buffers, small[i], 1);
    ck_assert_uint_eq(fake.allocated, 9);
    void *over = xn_buffers_get(buffers, 32 * KIB); /* held beyond the bound: nothing is kept */
    ck_assert_uint_eq(fake.live, 3);
    xn_buffers_put(buffers, over, 32 * KIB);
    ck_assert_uint_eq(fake.live, 2);
    xn_buffers_put(buffers, more, 16 * KIB);
    xn_buffers_put(buffers, big, 32 * KIB);
    xn_buffers_free(buffers);
    ck_assert_uint_eq(fake.live, 0);
}
END_TEST

START_TEST(idle_buffers_are_given_back) {
    xn_buffers *buffers = make(MIB);
    void *a = xn_buffers_get(buffers, 5000), *b = xn_buffers_get(buffers, 70000);
    xn_buffers_put(buffers, a, 5000);
    int64_t between = xn_now_ns() + 1;
    while (xn_now_ns() <= between)
        ;
    xn_buffers_put(buffers, b, 70000);
    ck_assert_uint_eq(xn_buffers_trim(buffers, between), 8 * KIB);
    ck_assert_uint_eq(fake.live, 1);
    ck_assert_uint_eq(xn_buffers_trim(buffers, between), 0);
    ck_assert_uint_eq(xn_buffers_trim(buffers, INT64_MAX), 80 * KIB);
    ck_assert_uint_eq(fake.live, 0);
    xn_buffers_free(buffers);
}
END_TEST

/* A large pinned buffer that is not kept is not made there and then. */
START_TEST(who_must_not_wait_does_not_pin_much) {
    xn_buffers *buffers = make(64 * MIB);
    ck_assert_ptr_null(xn_buffers_get_quick(buffers, 3 * MIB));
    ck_assert_uint_eq(fake.allocated, 0);
    void *made = xn_buffers_get(buffers, 3 * MIB), *small = xn_buffers_get_quick(buffers, 5000);
    ck_assert_ptr_nonnull(small);
    xn_buffers_put(buffers, made, 3 * MIB);
    ck_assert_ptr_eq(xn_buffers_get_quick(buffers, 3 * MIB), made);
    xn_buffers_put(buffers, made, 3 * MIB);
    xn_buffers_put(buffers, small, 5000);
    ck_assert_ptr_null(xn_buffers_get_quick(buffers, SIZE_MAX));
    xn_buffers_free(buffers);
}
END_TEST

START_TEST(failed_allocation_releases_what_is_kept_and_tries_again) {
    xn_buffers *buffers = make(MIB);
    void *a = xn_buffers_get(buffers, 5000), *b = xn_buffers_get(buffers, 70000);
    xn_buffers_put(buffers, a, 5000);
    xn_buffers_put(buffers, b, 70000);
    ck_assert_uint_eq(fake.live, 2);
    fake.left = 0; /* fails twice: the kept ones are gone, and NULL comes back */
    ck_assert_ptr_null(xn_buffers_get(buffers, 300000));
    ck_assert_int_eq(fake.left, -2);
    ck_assert_uint_eq(fake.live, 0);
    fake.left = 1000;
    a = xn_buffers_get(buffers, 5000); /* and the pool works on */
    ck_assert_ptr_nonnull(a);
    xn_buffers_put(buffers, a, 5000);
    xn_buffers_free(buffers);
    ck_assert_uint_eq(fake.live, 0);
}
END_TEST

/* Fails the allocation of that number, counted from 0. */
static bool fail_one(void *context, size_t bytes) {
    (void)bytes;
    return (*(long *)context)-- != 0;
}

START_TEST(plain_memory_and_its_failures) {
    xn_buffers *buffers = NULL;
    xn_error error = {0};
    long number = 0;
    xn_mem_set_hook(fail_one, &number);
    ck_assert_int_eq(xn_buffers_create(NULL, NULL, MIB, &buffers, &error), XN_ERR_NO_MEMORY);
    ck_assert_ptr_null(buffers);
    number = 1;
    ck_assert_int_eq(xn_buffers_create(&fake_backend, NULL, MIB, &buffers, &error), XN_OK);
    void *a = xn_buffers_get(buffers, 10000); /* fails once, then succeeds: the retry */
    ck_assert_ptr_nonnull(a);
    ck_assert_int_eq(number, -2);
    xn_mem_set_hook(NULL, NULL);
    ck_assert_uint_eq((uintptr_t)a % 64, 0);
    memset(a, 1, 10000);
    xn_buffers_put(buffers, a, 10000);
    ck_assert_ptr_eq(xn_buffers_get(buffers, 10000), a);
    xn_buffers_put(buffers, a, 10000);
    xn_buffers_free(buffers);
}
END_TEST

#define THREADS 8
#define HELD 6

static void *churn(void *argument) {
    xn_buffers *buffers = argument;
    static atomic_int numbers;
    int number = atomic_fetch_add(&numbers, 1) % THREADS;
    xn_rng rng = {xn_test_seed() + (uint64_t)number};
    struct {
        unsigned char *memory;
        size_t bytes;
    } held[HELD] = {{NULL, 0}};
    intptr_t wrong = 0;
    for (int round = 0; round < 3000; round++) {
        int slot = (int)xn_rng_below(&rng, HELD);
        size_t bytes = held[slot].bytes;
        unsigned char mark = (unsigned char)(number * HELD + slot + 1);
        if (held[slot].memory) {
            /* still as this thread left it: nobody else had the same buffer */
            wrong += held[slot].memory[0] != mark || held[slot].memory[bytes - 1] != mark ||
                     held[slot].memory[bytes / 2] != mark;
            xn_buffers_put(buffers, held[slot].memory, bytes);
            held[slot].memory = NULL;
            continue;
        }
        bytes = 1 + xn_rng_below(&rng, (size_t)1 << (10 + xn_rng_below(&rng, 8)));
        held[slot].bytes = bytes;
        held[slot].memory = xn_buffers_get(buffers, bytes);
        if (held[slot].memory)
            memset(held[slot].memory, mark, bytes);
    }
    for (int slot = 0; slot < HELD; slot++)
        xn_buffers_put(buffers, held[slot].memory, held[slot].bytes);
    return (void *)wrong;
}

/* Under the bound, over the bound, and with allocations that fail. */
START_TEST(many_threads) {
    static const struct {
        size_t keep;
        long left;
    } cases[] = {{64 * MIB, 1000000}, {256 * KIB, 1000000}, {0, 1000000}, {MIB, 400}};
    xn_buffers *buffers = make(cases[_i].keep);
    fake.left = cases[_i].left;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, buffers), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        ck_assert_msg(!wrong, "seed %llu: a buffer had two owners",
                      (unsigned long long)xn_test_seed());
    }
    ck_assert_uint_le(fake.live * 4096, cases[_i].keep);
    ck_assert_uint_eq(fake.allocated - fake.freed, fake.live);
    xn_buffers_free(buffers);
    ck_assert_uint_eq(fake.live, 0);
}
END_TEST

XN_SUITE(buffers) {
    Suite *s = suite_create("buffers");
    TCase *t = tcase_create("buffers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, class_sizes);
    tcase_add_test(t, classes_hold_and_bound_waste);
    tcase_add_test(t, impossible_sizes);
    tcase_add_test(t, the_steady_state_allocates_nothing);
    tcase_add_test(t, the_warmest_buffer_comes_first);
    tcase_add_test(t, what_is_held_and_kept_is_bounded_and_the_oldest_leaves);
    tcase_add_test(t, idle_buffers_are_given_back);
    tcase_add_test(t, who_must_not_wait_does_not_pin_much);
    tcase_add_test(t, failed_allocation_releases_what_is_kept_and_tries_again);
    tcase_add_test(t, plain_memory_and_its_failures);
    tcase_add_loop_test(t, many_threads, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
