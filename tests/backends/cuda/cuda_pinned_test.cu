/* cuda_pinned_test.cu: the list of pinned memory. Needs no GPU. */
#include "pinned.h"
#include "xn_test.h"

enum { BYTES = 2 };

static unsigned char memory[(XN_CUDA_PINNED_MOST + 1) * 2 * BYTES];

static void *range_at(int i) {
    return memory + (size_t)i * 2 * BYTES;
}

START_TEST(a_full_list_takes_no_more) {
    for (int i = XN_CUDA_PINNED_MOST; i > 0; i--)
        ck_assert(xn_cuda_pinned_add(range_at(i), BYTES));
    ck_assert(!xn_cuda_pinned_add(range_at(0), BYTES));
    ck_assert(!xn_cuda_pinned_has(range_at(0), BYTES));
    xn_cuda_pinned_remove(range_at(2));
    ck_assert(xn_cuda_pinned_add(range_at(0), BYTES));
    for (int i = 0; i <= XN_CUDA_PINNED_MOST; i++) {
        ck_assert_msg(xn_cuda_pinned_has(range_at(i), BYTES) == (i != 2), "range %d", i);
        ck_assert(!xn_cuda_pinned_has(range_at(i), BYTES + 1));
        xn_cuda_pinned_remove(range_at(i));
    }
    ck_assert(!xn_cuda_pinned_has(range_at(1), BYTES));
}
END_TEST

XN_SUITE(cuda_pinned) {
    Suite *s = suite_create("cuda_pinned");
    TCase *t = xn_test_case(s, "list", 0);
    tcase_add_test(t, a_full_list_takes_no_more);
    return s;
}
