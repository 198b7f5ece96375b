/* cuda_pinned_test.cu: the list of pinned memory while memory runs out. Needs no GPU. */
#include "pinned.h"
#include "xn_mem.h"
#include "xn_test.h"

enum { RANGES = 64, BYTES = 4096 }; /* as many as the list has room for at first */

static unsigned char memory[(RANGES + 2) * 2 * BYTES];

static void *range_at(int i) {
    return memory + (size_t)i * 2 * BYTES;
}

static bool refuse(void *context, size_t bytes) {
    (void)context, (void)bytes;
    return false;
}

/* What gives memory back frees pinned buffers, and so takes the list's lock. */
static void give_back(void) {
    xn_cuda_pinned_remove(range_at(0));
    xn_cuda_pinned_remove(range_at(1));
}

START_TEST(ranges_may_go_while_there_is_no_memory) {
    for (int i = 0; i < RANGES; i++)
        ck_assert(xn_cuda_pinned_add(range_at(i), BYTES));
    xn_mem_set_hook(refuse, NULL);
    xn_mem_set_shortage(give_back);
    const bool added = xn_cuda_pinned_add(range_at(RANGES), BYTES);
    xn_mem_set_shortage(NULL);
    xn_mem_set_hook(NULL, NULL);
    ck_assert(added == xn_cuda_pinned_has(range_at(RANGES), BYTES));
    ck_assert(added); /* there was room by then */
    for (int i = 0; i < RANGES; i++)
        ck_assert_msg(xn_cuda_pinned_has(range_at(i), BYTES) == (i > 1), "range %d", i);
    ck_assert(xn_cuda_pinned_add(range_at(0), BYTES) && xn_cuda_pinned_add(range_at(1), BYTES));
    ck_assert(xn_cuda_pinned_add(range_at(RANGES + 1), BYTES));
    for (int i = 0; i < RANGES + 2; i++)
        xn_cuda_pinned_remove(range_at(i));
    ck_assert(!xn_cuda_pinned_has(range_at(2), BYTES));
}
END_TEST

XN_SUITE(cuda_pinned) {
    Suite *s = suite_create("cuda_pinned");
    TCase *t = xn_test_case(s, "list", 0);
    tcase_add_test(t, ranges_may_go_while_there_is_no_memory);
    return s;
}
