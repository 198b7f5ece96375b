/* Where the tensors of a program lie: never two on the same bytes at the same time, and few bytes.
 */
#include "arena.h"
#include "xn_test.h"

#include <string.h>

enum { ALIGNMENT = 256, MOST = 64 };

static size_t plan(xn_arena_tensor *tensors, int count) {
    size_t total = 0;
    ck_assert(xn_arena_plan(tensors, count, ALIGNMENT, &total));
    for (int i = 0; i < count; i++) {
        const xn_arena_tensor *a = &tensors[i];
        ck_assert_uint_eq(a->offset % ALIGNMENT, 0);
        ck_assert_uint_le(a->offset + a->bytes, total);
        for (int j = 0; j < i; j++) {
            const xn_arena_tensor *b = &tensors[j];
            bool together = a->first <= b->last && b->first <= a->last;
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            ck_assert_msg(!together || apart || !a->bytes || !b->bytes, "%d and %d", j, i);
        }
    }
    return total;
}

START_TEST(a_chain_takes_two_buffers) {
    xn_arena_tensor tensors[10];
    for (int i = 0; i < 10; i++)
        tensors[i] = (xn_arena_tensor){.bytes = 1000, .first = i - 1, .last = i};
    ck_assert_uint_eq(plan(tensors, 10), 2 * 1024);
}
END_TEST

START_TEST(small_ones_fill_gaps) {
    xn_arena_tensor tensors[] = {
        {.bytes = 1024, .first = 0, .last = 1}, {.bytes = 512, .first = 1, .last = 5},
        {.bytes = 512, .first = 2, .last = 3},  {.bytes = 256, .first = 2, .last = 3},
        {.bytes = 256, .first = 3, .last = 4},  {.bytes = 0, .first = 0, .last = 9}};
    ck_assert_uint_eq(plan(tensors, 6), 1024 + 512);
}
END_TEST

START_TEST(random_lifetimes_never_collide) {
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 300; round++) {
        xn_arena_tensor tensors[MOST];
        int count = 1 + (int)xn_rng_below(&rng, MOST);
        size_t most = 0;
        for (int i = 0; i < count; i++) {
            int first = (int)xn_rng_below(&rng, 30);
            tensors[i] = (xn_arena_tensor){.bytes = (size_t)xn_rng_below(&rng, 5000),
                                           .first = first,
                                           .last = first + (int)xn_rng_below(&rng, 6)};
        }
        size_t total = plan(tensors, count);
        for (int at = 0; at < 36; at++) {
            size_t live = 0;
            for (int i = 0; i < count; i++)
                live += tensors[i].first <= at && at <= tensors[i].last ? tensors[i].bytes : 0;
            most = live > most ? live : most;
        }
        ck_assert_uint_ge(total, most);
        ck_assert_msg(total <= most + most / 2 + ALIGNMENT, "%zu bytes for %zu", total, most);
    }
}
END_TEST

START_TEST(what_passes_the_address_space_is_refused) {
    xn_arena_tensor one[] = {{.bytes = SIZE_MAX - 10}};
    xn_arena_tensor two[] = {{.bytes = SIZE_MAX / 2 + 1}, {.bytes = SIZE_MAX / 2 + 1}};
    size_t total = 7;
    ck_assert(!xn_arena_plan(one, 1, ALIGNMENT, &total));
    ck_assert(!xn_arena_plan(two, 2, ALIGNMENT, &total));
    ck_assert_uint_eq(total, 7);
}
END_TEST

XN_SUITE(arena) {
    Suite *s = suite_create("arena");
    TCase *t = xn_test_case(s, "arena", 0);
    tcase_add_test(t, a_chain_takes_two_buffers);
    tcase_add_test(t, small_ones_fill_gaps);
    tcase_add_test(t, random_lifetimes_never_collide);
    tcase_add_test(t, what_passes_the_address_space_is_refused);
    return s;
}
