/* auth_test.c: key files and Authorization headers. */
#include "auth.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static xn_status load_bytes(const void *bytes, size_t length, xn_auth **out, xn_error *error) {
    snprintf(path, sizeof path, "/tmp/xnord-keys-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    close(fd);
    xn_status status = xn_auth_load(path, out, error);
    unlink(path);
    return status;
}

static xn_auth *load_ok(const char *text) {
    xn_auth *auth = NULL;
    xn_error error = {0};
    xn_status status = load_bytes(text, strlen(text), &auth, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return auth;
}

#define KEY_A "0123456789abcdef"
#define KEY_B "another#key-with+signs/=~!"

static bool allows(xn_auth *auth, const char *header) {
    return xn_auth_match(auth, header, NULL);
}

START_TEST(headers) {
    static const struct {
        const char *header;
        bool allowed;
    } cases[] = {
        {"Bearer " KEY_A, true},
        {"bearer " KEY_A, true},
        {"BEARER " KEY_B, true},
        {"Bearer   " KEY_B "  ", true},
        {NULL, false},
        {"", false},
        {"Bearer", false},
        {"Bearer ", false},
        {"Bearer" KEY_A, false},
        {"Bearer\t" KEY_A, false},
        {" Bearer " KEY_A, false},
        {"Basic " KEY_A, false},
        {KEY_A, false},
        {"Bearer 0123456789abcde", false},
        {"Bearer 0123456789abcdeg", false},
        {"Bearer 1123456789abcdef", false},
        {"Bearer " KEY_A "0", false},
        {"Bearer " KEY_A " " KEY_A, false},
        {"Bearer " KEY_A "," KEY_B, false},
        {"Bearer 0123456789ABCDEF", false},
        {"Bearer # a comment that is long", false},
        {"Bearer a comment that is long", false},
    };
    xn_auth *auth = load_ok("# a comment that is long\n\n  " KEY_A "\t\r\n" KEY_B);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(allows(auth, cases[i].header) == cases[i].allowed, "case %zu: %s", i,
                      cases[i].header ? cases[i].header : "NULL");
    xn_auth_free(auth);
}
END_TEST

START_TEST(without_keys_all_are_allowed) {
    ck_assert(allows(NULL, NULL));
    ck_assert(allows(NULL, "Basic x"));
    xn_auth_free(NULL);
}
END_TEST

/* The first and last lengths, with every single byte changed in turn. */
START_TEST(every_byte_counts) {
    static const size_t lengths[] = {16, 17, 255, 256};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        char key[300] = {0}, header[400];
        for (size_t i = 0; i < lengths[l]; i++)
            key[i] = (char)('!' + (i * 7 + l) % 90);
        key[0] = 'k'; /* not a comment */
        xn_auth *auth = load_ok(key);
        snprintf(header, sizeof header, "Bearer %s", key);
        ck_assert(allows(auth, header));
        for (size_t i = 0; i < lengths[l]; i++) {
            header[7 + i] ^= 1;
            ck_assert_msg(!allows(auth, header), "length %zu byte %zu", lengths[l], i);
            header[7 + i] ^= 1;
        }
        ck_assert(allows(auth, header));
        header[7 + lengths[l] - 1] = 0;
        ck_assert(!allows(auth, header));
        snprintf(header, sizeof header, "Bearer %sx", key);
        ck_assert(!allows(auth, header));
        xn_auth_free(auth);
    }
}
END_TEST

START_TEST(any_of_many_keys) {
    static char text[1024 * 24];
    size_t n = 0;
    char header[64];
    for (int i = 0; i < 1024; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "key-number-%06d\n", i * 3);
    xn_auth *auth = load_ok(text);
    for (int i = 0; i < 3072; i++) {
        snprintf(header, sizeof header, "Bearer key-number-%06d", i);
        ck_assert_msg(allows(auth, header) == (i % 3 == 0), "%s", header);
    }
    xn_auth_free(auth);
    strcpy(text + n, "key-number-999999\n");
    xn_error error = {0};
    ck_assert_int_eq(load_bytes(text, strlen(text), &auth, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "1024"));
}
END_TEST

/* Refused, with the line and without a word of what is on it. */
START_TEST(bad_files) {
    static const struct {
        const char *text, *says, *hides;
    } cases[] = {{"", "no key", NULL},
                 {"\n\n# only this comment here\n", "no key", "comment"},
                 {"tooshortsecret1\n", ":1: the key has 15", "tooshort"},
                 {KEY_A "\n\nwith a space in it\n", ":3: character 5", "with"},
                 {KEY_A "\nwith\x01"
                        "acontrolchar\n",
                  ":2: character 5", "with"},
                 {KEY_A "\nwith\xc3\xa9"
                        "accentinside\n",
                  ":2: character 5", "with"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xn_auth *auth = NULL;
        xn_error error = {0};
        ck_assert_int_eq(load_bytes(cases[i].text, strlen(cases[i].text), &auth, &error),
                         XN_ERR_MALFORMED);
        ck_assert_ptr_null(auth);
        ck_assert_msg(strstr(error.message, cases[i].says) != NULL, "%s", error.message);
        ck_assert_str_eq(error.field, "api-keys-file");
        if (cases[i].hides)
            ck_assert_msg(!strstr(error.message, cases[i].hides), "%s", error.message);
    }
}
END_TEST

START_TEST(long_keys_zeros_and_large_files) {
    static char bytes[1024 * 1024 + 1];
    xn_auth *auth = NULL;
    xn_error error = {0};
    memset(bytes, 'x', 257);
    ck_assert_int_eq(load_bytes(bytes, 257, &auth, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "257 characters; 16 to 256"));
    bytes[9] = 0;
    ck_assert_int_eq(load_bytes(bytes, 20, &auth, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "character 10"));
    memset(bytes, '\n', sizeof bytes);
    memcpy(bytes, KEY_A, 16);
    ck_assert_int_eq(load_bytes(bytes, sizeof bytes, &auth, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "1048576"));
    ck_assert_int_eq(load_bytes(bytes, sizeof bytes - 1, &auth, &error), XN_OK);
    xn_auth_free(auth);
}
END_TEST

/* Whose key it was stays the same over reloads and files; no two keys share one. */
START_TEST(identities) {
    uint64_t first = 0, second = 0, again = 0, other = 1;
    xn_auth *auth = load_ok(KEY_A "\n" KEY_B "\n"), *turned = load_ok(KEY_B "\n" KEY_A "\n");
    ck_assert(xn_auth_match(auth, "Bearer " KEY_A, &first));
    ck_assert(xn_auth_match(auth, "Bearer " KEY_B, &second));
    ck_assert(first && second && first != second);
    ck_assert(xn_auth_match(turned, "bearer  " KEY_A, &again));
    ck_assert(again == first);
    ck_assert(!xn_auth_match(auth, "Bearer " KEY_A "x", &other));
    ck_assert(other == 0);
    other = 1;
    ck_assert(xn_auth_match(NULL, NULL, &other));
    ck_assert(other == 0);
    xn_auth_free(auth);
    xn_auth_free(turned);
}
END_TEST

typedef struct matcher {
    xn_auth *auth;
    atomic_bool stop;
    atomic_int wrong;
} matcher;

static void *match_on(void *context) {
    matcher *m = context;
    while (!atomic_load(&m->stop)) {
        bool kept = allows(m->auth, "Bearer " KEY_A);
        bool never = allows(m->auth, "Bearer never-a-key-of-these");
        atomic_fetch_add(&m->wrong, !kept || never);
    }
    return NULL;
}

/* A key that stands in every file is known at every moment. */
START_TEST(reloads_under_matches) {
    char file[] = "/tmp/xnord-auth-XXXXXX";
    static const char *const contents[] = {KEY_A "\n", KEY_B "\n" KEY_A "\n", "short\n"};
    matcher m = {.auth = load_ok(KEY_A "\n")};
    pthread_t threads[3];
    int fd = mkstemp(file);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, match_on, &m), 0);
    for (int i = 0; i < 300; i++) {
        const char *content = contents[i % 3];
        xn_error error = {0};
        ck_assert(!ftruncate(fd, 0) &&
                  pwrite(fd, content, strlen(content), 0) == (ssize_t)strlen(content));
        ck_assert_int_eq(xn_auth_reload(m.auth, file, &error),
                         i % 3 == 2 ? XN_ERR_MALFORMED : XN_OK);
        ck_assert(allows(m.auth, "Bearer " KEY_B) == (i % 3 != 0));
    }
    atomic_store(&m.stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&m.wrong), 0);
    close(fd);
    unlink(file);
    xn_auth_free(m.auth);
}
END_TEST

START_TEST(unreadable_files) {
    xn_auth *auth = NULL;
    xn_error error = {0};
    ck_assert_int_eq(xn_auth_load("/nonexistent/keys", &auth, &error), XN_ERR_IO);
    ck_assert_ptr_nonnull(strstr(error.message, "/nonexistent/keys"));
    ck_assert_int_eq(xn_auth_load("/tmp", &auth, &error), XN_ERR_IO);
    ck_assert_ptr_nonnull(strstr(error.message, "directory"));
    ck_assert_ptr_null(auth);
}
END_TEST

START_TEST(no_memory) {
    for (int allowed = 0;; allowed++) {
        atomic_int left = allowed;
        xn_auth *auth = NULL;
        xn_error error = {0};
        xn_mem_set_hook(xn_test_count_down, &left);
        xn_status status = load_bytes(KEY_A, strlen(KEY_A), &auth, &error);
        xn_mem_set_hook(NULL, NULL);
        if (status == XN_OK) {
            ck_assert_int_eq(allowed, 3); /* all allocations were failed before */
            xn_auth_free(auth);
            break;
        }
        ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
        ck_assert_ptr_null(auth);
    }
}
END_TEST

XN_SUITE(auth) {
    Suite *s = suite_create("auth");
    TCase *t = tcase_create("auth");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, headers);
    tcase_add_test(t, without_keys_all_are_allowed);
    tcase_add_test(t, every_byte_counts);
    tcase_add_test(t, any_of_many_keys);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, long_keys_zeros_and_large_files);
    tcase_add_test(t, identities);
    tcase_add_test(t, reloads_under_matches);
    tcase_add_test(t, unreadable_files);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return s;
}
