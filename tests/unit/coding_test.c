/* The content codings: what is coded comes back, from any bytes; what is not coded, or becomes too
 * much, is refused, and never writes more than it was allowed. */
#include "coding.h"

#include "xn_mem.h"
#include "xn_test.h"

#include <stdatomic.h>
#include <string.h>

/* Made by another implementation: gzip of "hello, hello, hello\n". */
static const unsigned char gzip_hello[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9,
    0xd7, 0x51, 0xc8, 0x40, 0xa2, 0xb8, 0x00, 0xe7, 0x42, 0x6e, 0x52, 0x14, 0x00, 0x00, 0x00};
static const char hello[] = "hello, hello, hello\n";

typedef struct {
    size_t granted, most, refuse_at;
    int calls;
} room;

static xn_status grow(void *context, size_t bytes, xn_error *error) {
    room *r = context;
    r->calls++;
    ck_assert_uint_ge(bytes, r->granted);
    ck_assert_uint_le(bytes, r->most);
    if (r->refuse_at && bytes >= r->refuse_at)
        return xn_fail(error, XN_ERR_BUSY, NULL, "no more");
    r->granted = bytes;
    return XN_OK;
}

static unsigned char *random_bytes(xn_rng *rng, size_t length, int kind) {
    unsigned char *bytes = malloc(length + 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = kind == 0   ? 0
                   : kind == 1 ? (unsigned char)xn_rng_next(rng)
                               : (unsigned char)(i / 100 + xn_rng_below(rng, 3));
    return bytes;
}

START_TEST(what_is_coded_comes_back) {
    xn_rng rng = {xn_test_seed() + (uint64_t)_i};
    static const size_t lengths[] = {0, 1, 100, 65536, (256 << 10) - 1, 256 << 10, 1 << 20};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int coding = XN_CODING_GZIP; coding <= XN_CODING_DEFLATE; coding++) {
            size_t length = lengths[i], coded = 0, decoded = 0;
            unsigned char *bytes = random_bytes(&rng, length, _i);
            unsigned char *to = malloc(length + length / 100 + 1000), *back = malloc(length + 1);
            room r = {.most = length};
            xn_error error;
            ck_assert(xn_coding_encode((xn_coding)coding, bytes, length, to,
                                       length + length / 100 + 1000, &coded));
            ck_assert_uint_ge(xn_coding_most(coded), length);
            back[length] = 0x5a;
            xn_status status = xn_coding_decode((xn_coding)coding, to, coded, back, length, "limit",
                                                grow, &r, &decoded, &error);
            ck_assert_msg(status == XN_OK, "%zu: %s", length, error.message);
            ck_assert_uint_eq(decoded, length);
            ck_assert(!memcmp(bytes, back, length) && back[length] == 0x5a);
            free(bytes);
            free(to);
            free(back);
        }
}
END_TEST

START_TEST(gzip_of_others) {
    char back[64];
    size_t decoded = 0;
    room r = {.most = sizeof back};
    xn_error error;
    ck_assert_int_eq(xn_coding_decode(XN_CODING_GZIP, gzip_hello, sizeof gzip_hello, back,
                                      sizeof back, "limit", grow, &r, &decoded, &error),
                     XN_OK);
    ck_assert_uint_eq(decoded, strlen(hello));
    ck_assert(!memcmp(back, hello, decoded));
}
END_TEST

static xn_status decode_hello(const unsigned char *bytes, size_t length, size_t most,
                              xn_error *error) {
    unsigned char back[65];
    size_t decoded = 0;
    room r = {.most = most};
    memset(back, 0x5a, sizeof back);
    xn_status status = xn_coding_decode(XN_CODING_GZIP, bytes, length, back, most, "max-body-bytes",
                                        grow, &r, &decoded, error);
    for (size_t i = most; i < sizeof back; i++)
        ck_assert_uint_eq(back[i], 0x5a);
    return status;
}

START_TEST(what_is_cut_or_longer_is_refused) {
    unsigned char bytes[sizeof gzip_hello + 1] = {0};
    xn_error error;
    memcpy(bytes, gzip_hello, sizeof gzip_hello);
    for (size_t length = 0; length < sizeof gzip_hello; length++)
        ck_assert_int_eq(decode_hello(bytes, length, 64, &error), XN_ERR_MALFORMED);
    ck_assert_int_eq(decode_hello(bytes, sizeof bytes, 64, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "behind"));
    ck_assert_int_eq(decode_hello(bytes, sizeof gzip_hello, strlen(hello), &error), XN_OK);
    ck_assert_int_eq(decode_hello(bytes, sizeof gzip_hello, 0, &error), XN_ERR_LIMIT);
    ck_assert_int_eq(decode_hello(bytes, sizeof gzip_hello, strlen(hello) - 1, &error),
                     XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-body-bytes");
}
END_TEST

START_TEST(changed_bytes_do_no_harm) {
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 20000; round++) {
        unsigned char bytes[sizeof gzip_hello];
        xn_error error;
        memcpy(bytes, gzip_hello, sizeof bytes);
        for (uint64_t n = 1 + xn_rng_below(&rng, 3); n; n--)
            bytes[xn_rng_below(&rng, sizeof bytes)] = (unsigned char)xn_rng_next(&rng);
        decode_hello(bytes, sizeof bytes, (size_t)xn_rng_below(&rng, 65), &error);
    }
}
END_TEST

/* A bomb takes no more than it is given room for, step by step. */
START_TEST(bombs) {
    const size_t length = (size_t)16 << 20, most = (size_t)1 << 20;
    unsigned char *bytes = calloc(1, length), *to = malloc(length), *back = malloc(most);
    size_t coded = 0, decoded = 0;
    xn_error error;
    ck_assert(xn_coding_encode(XN_CODING_GZIP, bytes, length, to, length, &coded));
    ck_assert_uint_lt(coded, length / 100);
    room r = {.most = most};
    ck_assert_int_eq(xn_coding_decode(XN_CODING_GZIP, to, coded, back, most, "limit", grow, &r,
                                      &decoded, &error),
                     XN_ERR_LIMIT);
    ck_assert_int_gt(r.calls, 1);
    r = (room){.most = most, .refuse_at = most};
    ck_assert_int_eq(xn_coding_decode(XN_CODING_GZIP, to, coded, back, most, "limit", grow, &r,
                                      &decoded, &error),
                     XN_ERR_BUSY);
    ck_assert_uint_lt(r.granted, most);
    free(bytes);
    free(to);
    free(back);
}
END_TEST

START_TEST(too_little_room_to_encode) {
    xn_rng rng = {xn_test_seed()};
    unsigned char *bytes = random_bytes(&rng, 10000, 1), to[10001];
    size_t coded;
    for (size_t most = 0; most < 10000; most += 1 + most / 3) {
        memset(to, 0x5a, sizeof to);
        ck_assert(!xn_coding_encode(XN_CODING_GZIP, bytes, 10000, to, most, &coded));
        ck_assert_uint_eq(to[most], 0x5a);
    }
    free(bytes);
}
END_TEST

START_TEST(allocations_that_fail) {
    unsigned char to[200];
    size_t coded, decoded;
    char back[64];
    xn_error error;
    bool encoded = false, done = false;
    atomic_int countdown;
    for (int at = 0; at < 50 && !(encoded && done); at++) {
        room r = {.most = sizeof back};
        atomic_store(&countdown, at);
        xn_mem_set_hook(xn_test_count_down, &countdown);
        encoded = xn_coding_encode(XN_CODING_GZIP, hello, strlen(hello), to, sizeof to, &coded);
        atomic_store(&countdown, at);
        xn_status status = xn_coding_decode(XN_CODING_GZIP, gzip_hello, sizeof gzip_hello, back,
                                            sizeof back, "limit", grow, &r, &decoded, &error);
        xn_mem_set_hook(NULL, NULL);
        done = status == XN_OK;
        ck_assert(done || status == XN_ERR_NO_MEMORY);
        ck_assert(at > 0 || (!encoded && !done));
    }
    ck_assert(encoded && done);
}
END_TEST

START_TEST(names) {
    static const struct {
        const char *text;
        bool known;
        xn_coding coding;
    } table[] = {
        {"gzip", true, XN_CODING_GZIP},         {"GZip", true, XN_CODING_GZIP},
        {"x-gzip", true, XN_CODING_GZIP},       {"deflate", true, XN_CODING_DEFLATE},
        {"identity", true, XN_CODING_IDENTITY}, {"br", false, XN_CODING_IDENTITY},
        {"", false, XN_CODING_IDENTITY},        {"gzip, deflate", false, XN_CODING_IDENTITY},
        {"gzipx", false, XN_CODING_IDENTITY}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        xn_coding coding = XN_CODING_IDENTITY;
        ck_assert_msg(xn_coding_parse(table[i].text, &coding) == table[i].known, "%s",
                      table[i].text);
        ck_assert_msg(coding == table[i].coding, "%s", table[i].text);
    }
}
END_TEST

START_TEST(choices) {
    static const struct {
        const char *text;
        xn_coding coding;
    } table[] = {{NULL, XN_CODING_IDENTITY},
                 {"", XN_CODING_IDENTITY},
                 {"gzip", XN_CODING_GZIP},
                 {"deflate", XN_CODING_DEFLATE},
                 {"gzip, deflate, br, zstd", XN_CODING_GZIP},
                 {"br, deflate , gzip", XN_CODING_DEFLATE},
                 {"deflate;q=0.5, gzip;q=0.8", XN_CODING_GZIP},
                 {"deflate; q=0.9 ,gzip ; q=0.800", XN_CODING_DEFLATE},
                 {"gzip;q=0", XN_CODING_IDENTITY},
                 {"gzip;q=0.000, deflate;q=0.001", XN_CODING_DEFLATE},
                 {"*", XN_CODING_IDENTITY},
                 {"br", XN_CODING_IDENTITY},
                 {"identity", XN_CODING_IDENTITY},
                 {"identity;q=1, gzip;q=0.5", XN_CODING_IDENTITY},
                 {"gzip;q=2", XN_CODING_IDENTITY},
                 {"gzip;level=9", XN_CODING_IDENTITY},
                 {",,gzip,", XN_CODING_GZIP},
                 {";;,=", XN_CODING_IDENTITY}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        ck_assert_msg(xn_coding_choose(table[i].text) == table[i].coding, "%s", table[i].text);
}
END_TEST

XN_SUITE(coding) {
    Suite *suite = suite_create("coding");
    TCase *tcase = tcase_create("coding");
    tcase_add_loop_test(tcase, what_is_coded_comes_back, 0, 3);
    tcase_add_test(tcase, gzip_of_others);
    tcase_add_test(tcase, what_is_cut_or_longer_is_refused);
    tcase_add_test(tcase, changed_bytes_do_no_harm);
    tcase_add_test(tcase, bombs);
    tcase_add_test(tcase, too_little_room_to_encode);
    tcase_add_test(tcase, allocations_that_fail);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, choices);
    suite_add_tcase(suite, tcase);
    return suite;
}
