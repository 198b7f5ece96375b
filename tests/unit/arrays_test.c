/* Arrays that grow and arrays in the order of names, against a plain list. */
#include "arrays.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 60 };

typedef struct item {
    char name[8];
    int payload;
} item;

static const char *name_of(const void *items, size_t index) {
    return ((const item *)items)[index].name;
}

/* Names come and go in random order; after each step all are looked for. */
START_TEST(names_in_order) {
    uint64_t seed = xn_test_seed();
    xn_rng rng = {seed};
    size_t count = 0, capacity = 0, at;
    item *items = xn_array_grow(NULL, 0, &capacity, sizeof *items, 4);
    ck_assert_ptr_nonnull(items);
    bool in[NAMES] = {false};
    for (int step = 0; step < 2000; step++) {
        int which = (int)xn_rng_below(&rng, NAMES);
        char name[8];
        snprintf(name, sizeof name, "n%d", which); /* n10 comes before n2 */
        ck_assert_msg(xn_names_find(items, count, name_of, name, &at) == in[which], "seed %llu",
                      (unsigned long long)seed);
        if (in[which]) {
            ck_assert_int_eq(items[at].payload, which);
            memmove(&items[at], &items[at + 1], (--count - at) * sizeof *items);
        } else {
            items = xn_array_grow(items, count, &capacity, sizeof *items, 4);
            ck_assert_ptr_nonnull(items);
            memmove(&items[at + 1], &items[at], (count++ - at) * sizeof *items);
            items[at] = (item){.payload = which};
            snprintf(items[at].name, sizeof items[at].name, "%s", name);
        }
        in[which] = !in[which];
        for (size_t i = 1; i < count; i++)
            ck_assert_int_lt(strcmp(items[i - 1].name, items[i].name), 0);
    }
    xn_mem_free(items);
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
