/* Arrays that grow and tables in the order of names, against a plain list. */
#include "arrays.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 60 };

typedef struct item {
    char name[16];
} item;

/* Names come and go in random order; after each step all are looked for. */
START_TEST(names_in_order) {
    uint64_t seed = xn_test_seed();
    xn_rng rng = {seed};
    xn_names names = {0};
    static item items[NAMES];
    for (int i = 0; i < NAMES; i++)
        snprintf(items[i].name, sizeof items[i].name, "n%d", i); /* n10 comes before n2 */
    bool in[NAMES] = {false};
    for (int step = 0; step < 2000; step++) {
        int which = (int)xn_rng_below(&rng, NAMES);
        item *found = xn_names_get(&names, items[which].name);
        ck_assert_msg(found == (in[which] ? &items[which] : NULL), "seed %llu",
                      (unsigned long long)seed);
        if (in[which]) {
            xn_names_remove(&names, found);
        } else {
            ck_assert(xn_names_reserve(&names));
            xn_names_insert(&names, &items[which]);
        }
        in[which] = !in[which];
        for (size_t i = 1; i < names.count; i++)
            ck_assert_int_lt(strcmp(names.items[i - 1], names.items[i]), 0);
    }
    xn_names_free(&names);
}
END_TEST

static bool refuse(void *context, size_t bytes) {
    (void)context, (void)bytes;
    return false;
}

START_TEST(growing) {
    size_t capacity = 0;
    int *items = xn_array_grow(NULL, 0, &capacity, sizeof *items, 2);
    ck_assert_ptr_nonnull(items);
    ck_assert_uint_eq(capacity, 2);
    items[0] = 10;
    ck_assert_ptr_eq(xn_array_grow(items, 1, &capacity, sizeof *items, 2), items);
    items[1] = 11;
    xn_mem_set_hook(refuse, NULL);
    void *none = xn_array_grow(items, 2, &capacity, sizeof *items, 2);
    xn_mem_set_hook(NULL, NULL);
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(capacity, 2);
    ck_assert_int_eq(items[1], 11); /* still there */
    items = xn_array_grow(items, 2, &capacity, sizeof *items, 2);
    ck_assert_uint_eq(capacity, 4);
    ck_assert(items[0] == 10 && items[1] == 11);
    xn_mem_free(items);
}
END_TEST

XN_SUITE(arrays) {
    Suite *s = suite_create("arrays");
    TCase *t = tcase_create("arrays");
    tcase_add_test(t, names_in_order);
    tcase_add_test(t, growing);
    suite_add_tcase(s, t);
    return s;
}
