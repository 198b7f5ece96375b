/* buffers_test.c: the buffer pool over plain memory and over a device whose allocator counts. */
#include "buffers.h"
#include "clock.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdatomic.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

/* A device made of nothing but an allocator with a limit. */
static struct fake {
    atomic_size_t live, allocated, freed; /* buffers; calls */
    atomic_size_t live_bytes;
    atomic_long left;         /* allocations that still succeed */
    atomic_size_t last_bytes; /* of the newest */
    void (*on_free)(void *memory);
} fake;

/* Before each of its buffers. */
typedef struct fake_header {
    _Alignas(64) size_t bytes; /* 0: it was freed */
} fake_header;

static void *fake_alloc(xn_device *device, size_t bytes) {
    ck_assert_ptr_eq((void *)device, (void *)&fake);
    if (atomic_fetch_sub(&fake.left, 1) <= 0)
        return NULL;
    fake.allocated++;
    fake.live++;
    fake.live_bytes += bytes;
    fake.last_bytes = bytes;
    fake_header *header = xn_mem_alloc(sizeof *header + bytes);
    header->bytes = bytes;
    return header + 1;
}

static void fake_free(xn_device *device, void *memory) {
    ck_assert_ptr_eq((void *)device, (void *)&fake);
    fake_header *header = (fake_header *)memory - 1;
    ck_assert_uint_ne(header->bytes, 0);
    fake.freed++;
    fake.live--;
    fake.live_bytes -= header->bytes;
    header->bytes = 0;
    if (fake.on_free)
        fake.on_free(memory);
    xn_mem_free(header);
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

START_TEST(plain_memory_and_its_failures) {
    xn_buffers *buffers = NULL;
    xn_error error = {0};
    atomic_int number = 0; /* of the allocation that fails */
    xn_mem_set_hook(xn_test_count_down, &number);
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

/* A time after all calls so far and before all later ones. */
static int64_t next_ns(void) {
    const int64_t ns = xn_now_ns() + 1;
    while (xn_now_ns() <= ns)
        ;
    return ns;
}

/* ---- any order of calls against a model that knows every buffer ---- */

#define ROUNDS 20000
#define MOST_KNOWN 4096

typedef struct known {
    unsigned char *memory;
    size_t bytes, size; /* as asked for; of the class */
    unsigned char mark; /* in its first and last byte */
    bool held;
    int64_t put_ns; /* a time not before it was put, and before the next call */
} known;

static struct model {
    xn_buffers *buffers;
    size_t max_bytes;
    known all[MOST_KNOWN];
    size_t count, held_bytes;
    int64_t newest_freed_ns; /* the last put of those that the pool gave back in this step */
    bool over;               /* callers have not kept to max_bytes */
} model;

static known *model_find(const void *memory) {
    for (size_t i = 0; i < model.count; i++)
        if (model.all[i].memory == memory)
            return &model.all[i];
    return NULL;
}

/* The pool gave it back to the system: one that no caller holds. */
static void model_freed(void *memory) {
    known *k = model_find(memory);
    ck_assert(k && !k->held);
    if (k->put_ns > model.newest_freed_ns)
        model.newest_freed_ns = k->put_ns;
    *k = model.all[--model.count];
}

static known *model_pick(xn_rng *rng, bool held) {
    const size_t first = xn_rng_below(rng, model.count ? model.count : 1);
    for (size_t i = 0; i < model.count; i++) {
        known *k = &model.all[(first + i) % model.count];
        if (k->held == held)
            return k;
    }
    return NULL;
}

static size_t model_free_bytes(int64_t before_ns) {
    size_t bytes = 0;
    for (size_t i = 0; i < model.count; i++)
        bytes += !model.all[i].held && model.all[i].put_ns <= before_ns ? model.all[i].size : 0;
    return bytes;
}

/* Of that size the one that was put last, or NULL. */
static const known *model_warmest(size_t size) {
    const known *found = NULL;
    for (size_t i = 0; i < model.count; i++) {
        const known *k = &model.all[i];
        if (!k->held && k->size == size && (!found || k->put_ns > found->put_ns))
            found = k;
    }
    return found;
}

static void model_get(xn_rng *rng, bool fails) {
    const size_t bytes = 1 + xn_rng_below(rng, (size_t)1 << (10 + xn_rng_below(rng, 11)));
    const size_t size = xn_buffers_size(bytes);
    const known *warmest = model_warmest(size);
    const void *expected = warmest ? warmest->memory : NULL;
    const size_t allocated = fake.allocated;
    if ((model.held_bytes + size > model.max_bytes && !model.over) || model.count == MOST_KNOWN)
        return;
    fake.left = fails ? 0 : 1000000;
    unsigned char *memory = xn_rng_below(rng, 2) ? xn_buffers_get(model.buffers, bytes)
                                                 : xn_buffers_get_quick(model.buffers, bytes);
    if (!memory) {
        ck_assert(!warmest && fails && fake.left == -2); /* tried twice */
        ck_assert_uint_eq(model_free_bytes(INT64_MAX), 0);
        return;
    }
    known *k = model_find(memory);
    ck_assert(!warmest || memory == expected);
    if (!warmest) {
        ck_assert(fake.allocated == allocated + 1 && !k);
        k = &model.all[model.count++];
        *k = (known){.memory = memory, .size = size};
    }
    ck_assert(k && !k->held && k->size == size);
    *k = (known){memory, bytes, size, (unsigned char)xn_rng_below(rng, 256), true, 0};
    memory[0] = memory[bytes - 1] = k->mark;
    model.held_bytes += size;
}

static void model_put(known *k) {
    ck_assert(k->memory[0] == k->mark && k->memory[k->bytes - 1] == k->mark);
    unsigned char *memory = k->memory;
    const size_t bytes = k->bytes;
    k->held = false;
    k->put_ns = INT64_MAX; /* not known before it is back, and it may leave at once */
    model.held_bytes -= k->size;
    xn_buffers_put(model.buffers, memory, bytes);
    k = model_find(memory);
    if (k)
        k->put_ns = next_ns();
}

static void model_trim(int64_t before_ns) {
    const size_t old = model_free_bytes(before_ns), live = fake.live_bytes;
    ck_assert_uint_eq(xn_buffers_trim(model.buffers, before_ns), old);
    ck_assert_uint_eq(fake.live_bytes, live - old);
    ck_assert_uint_eq(model_free_bytes(before_ns), 0);
}

static void model_check(void) {
    size_t bytes = 0;
    for (size_t i = 0; i < model.count; i++) {
        const known *k = &model.all[i];
        bytes += k->size;
        ck_assert(k->held || k->put_ns > model.newest_freed_ns); /* the oldest leave first */
    }
    ck_assert_uint_eq(fake.live, model.count); /* none was lost */
    ck_assert_uint_eq(fake.live_bytes, bytes);
    if (model.held_bytes <= model.max_bytes)
        ck_assert_uint_le(fake.live_bytes, model.max_bytes);
    else
        ck_assert_uint_eq(fake.live_bytes, model.held_bytes); /* nothing is kept */
}

static void model_step(xn_rng *rng, bool putting) {
    const uint64_t what = xn_rng_below(rng, 380);
    known *held = model_pick(rng, true), *free = model_pick(rng, false);
    model.newest_freed_ns = INT64_MIN;
    if (what < 2)
        model_trim(INT64_MAX);
    else if (what < 6 && free)
        model_trim(free->put_ns);
    else if (what < 12)
        model_get(rng, true);
    else if (held && what < (putting ? 280 : 140))
        model_put(held);
    else
        model_get(rng, false);
}

/* Waves of gets and puts, so that all is held at times and little at others. */
START_TEST(any_order_of_calls) {
    static const struct {
        size_t max_bytes;
        bool over;
    } cases[] = {{2 * MIB, false}, {8 * MIB, false}, {32 * MIB, false}, {4 * MIB, true}};
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    memset(&model, 0, sizeof model);
    model.buffers = make(cases[_i].max_bytes);
    model.max_bytes = cases[_i].max_bytes;
    fake.on_free = model_freed;
    for (int round = 0; round < ROUNDS; round++) {
        const bool putting = round / 250 % 2;
        model.over = cases[_i].over && round / 1000 % 2;
        model_step(&rng, putting);
        model_check();
    }
    for (known *k; (k = model_pick(&rng, true));)
        model_put(k);
    xn_buffers_free(model.buffers);
    ck_assert_uint_eq(fake.live, 0);
    ck_assert_uint_eq(fake.freed, fake.allocated);
}
END_TEST

XN_SUITE(buffers) {
    Suite *s = suite_create("buffers");
    TCase *t = tcase_create("buffers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, classes_hold_and_bound_waste);
    tcase_add_test(t, impossible_sizes);
    tcase_add_test(t, who_must_not_wait_does_not_pin_much);
    tcase_add_test(t, plain_memory_and_its_failures);
    tcase_add_loop_test(t, any_order_of_calls, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
