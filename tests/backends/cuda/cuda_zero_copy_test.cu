/* cuda_zero_copy_test.cu: small batches that kernels read and write in host memory. Which bytes a
 * block copies, and which memory is pinned, against models that need no GPU; on one, batches of all
 * kinds of items against ref: pinned or not, too large for it, at all alignments, over and over on
 * one program, so that its graphs are played with other items. */
#include "backends/bk_run.h"
#include "graphs.h"
#include "pinned.h"
#include "xn_cuda.h"
#include "xn_program.h"

#include <algorithm>
#include <map>
#include <string.h>
#include <vector>

/* ---- pieces ---- */

static std::vector<xn_zero_copy_item> random_items(xn_rng *rng, int32_t count, bool empty) {
    std::vector<xn_zero_copy_item> items((size_t)count + 1);
    for (int32_t i = 0; i < count; i++)
        items[(size_t)i + 1].first = items[(size_t)i].first + (empty ? 0 : 1) +
                                     (int64_t)xn_rng_below(rng, xn_rng_below(rng, 4) ? 2 : 9);
    if (!items[(size_t)count].first)
        items[(size_t)count].first = 1;
    return items;
}

/* Every byte of every item once, in its place, whatever the chunks. */
START_TEST(pieces_cover_the_items) {
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 3000; round++) {
        const int32_t count = 1 + (int32_t)xn_rng_below(&rng, 20);
        const size_t image_bytes = 1 + xn_rng_below(&rng, 70), chunk = 1 + xn_rng_below(&rng, 300);
        const std::vector<xn_zero_copy_item> items = random_items(&rng, count, round % 3 == 0);
        const size_t all = (size_t)items[(size_t)count].first * image_bytes;
        std::vector<int> seen(all);
        for (size_t from = 0; from < all; from += chunk) {
            const size_t end = std::min(from + chunk, all);
            for (size_t at = from; at < end;) {
                const xn_zero_copy_piece p =
                    xn_zero_copy_piece_of(items.data(), count, image_bytes, at, end);
                ck_assert(p.item >= 0 && p.item < count && p.bytes > 0 && p.at == at);
                const size_t begins = (size_t)items[(size_t)p.item].first * image_bytes;
                const size_t ends = (size_t)items[(size_t)p.item + 1].first * image_bytes;
                ck_assert_uint_eq(begins + p.offset, at);
                ck_assert_uint_le(at + p.bytes, std::min(ends, end));
                for (size_t i = 0; i < p.bytes; i++)
                    seen[at + i]++;
                at += p.bytes;
            }
        }
        ck_assert(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    }
}
END_TEST

/* ---- pinned ranges ---- */

START_TEST(pinned_ranges_are_those_of_a_map) {
    enum { SLOTS = 40, SLOT = 64, STEPS = 40000 };
    static char memory[SLOTS * SLOT];
    std::map<size_t, size_t> model; /* from, end */
    xn_rng rng = {xn_test_seed()};
    for (int i = 0; i < STEPS; i++) {
        const size_t at = xn_rng_below(&rng, SLOTS) * SLOT;
        const size_t bytes = 1 + xn_rng_below(&rng, 3 * SLOT);
        const auto next = model.upper_bound(at);
        const auto before = next == model.begin() ? model.end() : std::prev(next);
        const bool inside = before != model.end() && before->second > at;
        const bool apart = !inside && (next == model.end() || at + bytes <= next->first);
        switch (xn_rng_below(&rng, 4)) {
        case 0:
            if (at + bytes > sizeof memory)
                break;
            ck_assert_int_eq(xn_cuda_pinned_add(memory + at, bytes), apart);
            if (apart)
                model[at] = at + bytes;
            break;
        case 1:
            xn_cuda_pinned_remove(memory + at);
            model.erase(at);
            break;
        default: {
            const size_t from = at + xn_rng_below(&rng, SLOT);
            const auto after = model.upper_bound(from);
            const bool has = after != model.begin() && std::prev(after)->second >= from + bytes;
            ck_assert_int_eq(xn_cuda_pinned_has(memory + from, bytes), has);
        }
        }
    }
    for (const auto &range : model)
        xn_cuda_pinned_remove(memory + range.first);
    ck_assert(!xn_cuda_pinned_has(memory, 1));
}
END_TEST

/* ---- batches ---- */

/* An item's memory: pinned or not, between guards, aligned to no more than `unit` bytes. */
struct place {
    enum { GUARD = 64, POISON = 0x5a };
    const bk_target *target;
    bool pinned;
    size_t bytes;
    char *memory, *data;

    place(const bk_target *t, xn_rng *rng, bool is_pinned, size_t unit, size_t count)
        : target(t), pinned(is_pinned), bytes(count) {
        const size_t all = bytes + 3 * GUARD;
        memory = (char *)(pinned ? t->backend->host_alloc(t->device, all) : malloc(all));
        ck_assert_ptr_nonnull(memory);
        memset(memory, POISON, all);
        data = memory + GUARD + unit * xn_rng_below(rng, GUARD / unit);
    }
    ~place() {
        if (pinned)
            target->backend->host_free(target->device, memory);
        else
            free(memory);
    }
    place(const place &) = delete;
    place &operator=(const place &) = delete;
    void check_guards() const {
        for (const char *at = memory; at < memory + bytes + 3 * GUARD; at++)
            ck_assert_msg(*at == POISON || (at >= data && at < data + bytes), "written outside");
    }
};

struct fixture {
    bk_case c;
    bk_problem problem;
    xn_prepared *prepared, *ref_prepared;
    xn_program *program, *ref_program;
    size_t in, out;
};

static xn_program *create(const bk_target *t, const bk_problem *p, int64_t images,
                          xn_prepared **prepared) {
    xn_program *program = NULL;
    xn_problem problem = {};
    xn_error error = {};
    problem.conv = p->conv;
    ck_assert_int_eq(t->backend->weights_prepare(t->device, p->weights, prepared, &error), XN_OK);
    ck_assert_msg(xn_program_create(t->backend, t->stream, &problem, images, &program, &error) ==
                      XN_OK,
                  "%s", error.message);
    return program;
}

/* small: of few pixels, so that ref is quick, and few images, so that graphs are played. */
static void open_fixture(const bk_target *t, xn_rng *rng, bool small, fixture *f) {
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_INT8};
    f->c = bk_case_default();
    f->c.images = small ? 2 : 12;
    f->c.channels = 1 + (int64_t)xn_rng_below(rng, 40);
    f->c.height = 1 + (int64_t)xn_rng_below(rng, small ? 6 : xn_rng_below(rng, 3) ? 24 : 90);
    f->c.width = 1 + (int64_t)xn_rng_below(rng, small ? 9 : 40);
    f->c.out_channels = 1 + (int64_t)xn_rng_below(rng, 40);
    f->c.kernel_h = f->c.kernel_w = 1;
    f->c.input_datatype = datatypes[xn_rng_below(rng, 3)];
    f->c.params.output_datatype = XN_INT32;
    f->c.params.scaling = XN_SCALING_NONE;
    f->c.seed = xn_rng_next(rng);
    bk_problem_make(&f->c, &f->problem);
    f->in = xn_conv_input_bytes(&f->problem.conv);
    f->out = xn_conv_output_bytes(&f->problem.conv);
    f->program = create(t, &f->problem, f->c.images, &f->prepared);
    f->ref_program = create(bk_target_ref(), &f->problem, f->c.images, &f->ref_prepared);
}

static void close_fixture(const bk_target *t, fixture *f) {
    xn_program_free(f->program);
    xn_program_free(f->ref_program);
    t->backend->weights_free(f->prepared);
    bk_target_ref()->backend->weights_free(f->ref_prepared);
    bk_problem_free(&f->problem);
}

static bool always(void *) {
    return true;
}

/* by_looks: by waits whose time has passed. Returns how many of those the run outlasted. */
static int run(xn_program *program, xn_prepared *const *prepared, const xn_batch_item *items,
               size_t count, bool by_looks, xn_run_times *times) {
    const xn_prepared *const *weights = (const xn_prepared *const *)prepared;
    const xn_cancel_token token = {always, NULL, by_looks ? 1 : 0};
    xn_error error = {};
    int looks = 0;
    ck_assert_msg(xn_program_ready(program, weights, &error) == XN_OK, "%s", error.message);
    xn_status status =
        xn_program_run_cancellable(program, weights, items, count, &token, times, &error);
    for (; status == XN_ERR_DEADLINE && by_looks; looks++)
        status = xn_program_wait(program, 1, times, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return looks;
}

/* A batch of random items of the fixture's images. True where kernels alone ran it. */
static bool check_batch(const bk_target *t, xn_rng *rng, const fixture *f, int *looks) {
    const size_t unit = xn_datatype_bytes(f->c.input_datatype);
    const int pinned_percent = 50 * (int)xn_rng_below(rng, 3);
    std::vector<place *> places;
    std::vector<xn_batch_item> items, expected_items;
    std::vector<char> expected(f->out * (size_t)f->c.images);
    int64_t first = 0, left = 1 + (int64_t)xn_rng_below(rng, (uint64_t)f->c.images);
    while (left) {
        const int64_t images = 1 + (int64_t)xn_rng_below(rng, (uint64_t)left);
        bool pinned[2];
        for (bool &p : pinned)
            p = (int)xn_rng_below(rng, 100) < pinned_percent;
        place *in = new place(t, rng, pinned[0], unit, f->in * (size_t)images);
        place *out = new place(t, rng, pinned[1], 4, f->out * (size_t)images);
        const char *from = (const char *)f->problem.input + f->in * (size_t)first;
        memcpy(in->data, from, in->bytes);
        places.insert(places.end(), {in, out});
        items.push_back({in->data, out->data, images});
        expected_items.push_back({from, expected.data() + f->out * (size_t)first, images});
        first += images;
        left -= images;
    }
    xn_run_times times = {-1, -1, -1};
    const uint32_t before = xn_zero_copy_runs(t->stream->zero_copy);
    *looks +=
        run(f->program, &f->prepared, items.data(), items.size(), xn_rng_below(rng, 2), &times);
    const uint32_t after = xn_zero_copy_runs(t->stream->zero_copy);
    run(f->ref_program, &f->ref_prepared, expected_items.data(), expected_items.size(), false,
        NULL);
    ck_assert(times.upload_ns >= 0 && times.compute_ns >= 0 && times.download_ns >= 0);
    for (size_t i = 0; i < items.size(); i++)
        ck_assert_mem_eq(items[i].output, expected_items[i].output, places[2 * i + 1]->bytes);
    for (const place *p : places) {
        p->check_guards();
        delete p;
    }
    return after != before;
}

START_TEST(batches_are_those_of_ref) {
    enum { PROGRAMS = 60, BATCHES = 12, SMALL_BATCHES = 4 * XN_CUDA_GRAPH_MEETINGS };
    const bk_target *t = bk_target_named("cuda");
    xn_rng rng = {xn_test_seed()};
    int by_kernels = 0, by_copies = 0, looks[2] = {0, 0};
    for (int i = 0; t && i < PROGRAMS; i++) {
        fixture f;
        const bool small = i % 2;
        open_fixture(t, &rng, small, &f);
        for (int batch = 0; batch < (small ? SMALL_BATCHES : BATCHES); batch++) {
            int outlasted = 0;
            const bool kernels = check_batch(t, &rng, &f, &outlasted);
            *(kernels ? &by_kernels : &by_copies) += 1;
            looks[kernels] += outlasted;
        }
        close_fixture(t, &f);
    }
    ck_assert(!t || (by_kernels > PROGRAMS && by_copies > 0 && looks[0] > 0 && looks[1] > 0));
}
END_TEST

XN_SUITE(cuda_zero_copy) {
    Suite *s = suite_create("cuda_zero_copy");
    TCase *t = xn_test_case(s, "cuda_zero_copy", 300);
    tcase_add_test(t, pieces_cover_the_items);
    tcase_add_test(t, pinned_ranges_are_those_of_a_map);
    tcase_add_test(t, batches_are_those_of_ref);
    return s;
}
