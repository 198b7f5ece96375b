/* framing.c and target.c without a daemon: the walk over what version 0.9 of the HTTP library
 * leaves in memory, against a plain reading of the bytes as they came; targets and lengths. */
#include "framing.h"
#include "xn_test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- the library's part, from what its source does ---- */

typedef struct {
    size_t used;      /* up to the end of the empty line */
    size_t names[64]; /* where the library found them */
    int count;
} left;

/* Ends lines at CR LF or a bare LF and puts NUL there and over the first colon, as the library does
 * in place. used is 0 if the empty line never came, or if the library itself refuses a line. */
static left leave_in_memory(char *bytes, size_t length) {
    left l = {0};
    for (size_t at = 0; at < length;) {
        char *line = bytes + at, *lf = memchr(line, '\n', length - at);
        if (!lf)
            return l;
        size_t name = at;
        at = (size_t)(lf - bytes) + 1;
        if (lf > line && lf[-1] == '\r')
            lf[-1] = 0;
        *lf = 0;
        if (!*line) {
            l.used = at;
            return l;
        }
        char *colon = strchr(line, ':');
        if (l.count && (*line == ' ' || *line == '\t'))
            continue; /* joined to the one before, elsewhere in memory: the test leaves it there */
        if (!colon)
            return l;
        *colon = 0;
        l.names[l.count++] = name;
    }
    return l;
}

/* ---- the same, read plainly ---- */

static bool line_valid(const char *line, size_t length) {
    size_t name = 0;
    while (name < length && xn_token_valid(line + name, 1))
        name++;
    if (!name || name == length || line[name] != ':')
        return false;
    for (size_t i = name + 1; i < length; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c != '\t' && (c < ' ' || c == 127))
            return false;
    }
    return true;
}

static bool section_valid(const char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        const char *end = memmem(bytes + at, length - at, "\r\n", 2);
        if (!end)
            return false;
        size_t line = (size_t)(end - bytes) - at;
        if (!line)
            return at + 2 == length;
        if (!line_valid(bytes + at, line))
            return false;
        at += line + 2;
    }
    return false;
}

/* NUL beside a bare LF, or around the last CR LF, looks like CR LF then. */
static bool ambiguous(const char *bytes, size_t length) {
    return memmem(bytes, length, "\0\n", 2) || memmem(bytes, length, "\n\0", 2) ||
           memmem(bytes, length, "\0\r\n\n", 4);
}

/* ---- the walk ---- */

static int walk(const char *bytes, size_t length, size_t *used) {
    char *copy = malloc(length ? length : 1); /* exactly that long, for AddressSanitizer */
    xn_framing framing = {0};
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, length);
    left l = leave_in_memory(copy, length);
    *used = l.used;
    if (l.used) {
        char *exact = malloc(l.used);
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, copy, l.used);
        xn_framing_walk state = {exact, exact + l.used};
        for (int i = 0; i < l.count; i++)
            xn_framing_walk_field(&framing, &state, exact + l.names[i]);
        xn_framing_walk_end(&framing, &state);
        free(exact);
    }
    free(copy);
    return framing.status;
}

START_TEST(mutated_sections) {
    static const char *const seeds[] = {
        "Host: a\r\nContent-Length: 5\r\nX-A:b\r\n\r\n",
        "Host: a\r\nTransfer-Encoding:\tchunked \t\r\nY:\r\n\r\n",
        "A: b\r\n c: d\r\nE: f\r\n\r\n",
        "\r\n",
        "A: b\0\0C\0d\r\n\r\n",
    };
    static const size_t seed_lengths[] = {37, 45, 21, 2, 13};
    static const char letters[] = "\0\r\n\t :aZ0-\x7f\x80\x01";
    xn_rng rng = {xn_test_seed() + 99};
    int accepted = 0, refused = 0;
    for (int round = 0; round < 200000; round++) {
        char bytes[96];
        uint64_t which = xn_rng_below(&rng, sizeof seeds / sizeof *seeds);
        const char *seed = seeds[which];
        size_t length = seed_lengths[which], used;
        memcpy(bytes, seed, length);
        for (uint64_t n = xn_rng_below(&rng, 4); n > 0; n--) {
            size_t at = (size_t)xn_rng_below(&rng, length);
            char letter = letters[xn_rng_below(&rng, sizeof letters - 1)];
            if (xn_rng_below(&rng, 2) && length + 1 < sizeof bytes)
                memmove(bytes + at + 1, bytes + at, length++ - at);
            bytes[at] = letter;
        }
        int status = walk(bytes, length, &used);
        if (!used || ambiguous(bytes, used))
            continue;
        bool valid = section_valid(bytes, used);
        ck_assert_msg((status == 0) == valid, "seed %llu round %d: status %d, valid %d",
                      (unsigned long long)xn_test_seed(), round, status, valid);
        accepted += valid;
        refused += !valid;
    }
    ck_assert_int_gt(accepted, 1000);
    ck_assert_int_gt(refused, 1000);
}
END_TEST

/* Any bytes at all: no read or write outside, whatever the verdict. */
START_TEST(random_memory) {
    static const char letters[] = "\0\0\0a:\t \r\n\xff";
    xn_rng rng = {xn_test_seed() + 7};
    for (int round = 0; round < 200000; round++) {
        size_t length = (size_t)xn_rng_below(&rng, 24);
        char *bytes = malloc(length ? length : 1);
        xn_framing framing = {0};
        ck_assert_ptr_nonnull(bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = letters[xn_rng_below(&rng, sizeof letters - 1)];
        xn_target target = xn_target_read(bytes, length);
        ck_assert(target.prefix <= length);
        xn_host_valid(bytes, length);
        xn_framing_start(&framing, bytes, length, &target);
        framing.status = 0;
        xn_framing_walk state = {bytes, bytes + length};
        for (size_t i = 0; i < length; i++)
            xn_framing_walk_field(&framing, &state, xn_rng_below(&rng, 4) ? state.at : bytes + i);
        xn_framing_walk_end(&framing, &state);
        xn_framing_finish(&framing, false);
        free(bytes);
    }
}
END_TEST

START_TEST(blanks_behind_values) {
    char bytes[] = "A\0 b \t\0\0C\0 \t \0\0D\0e\0\0\0\0";
    xn_framing framing = {0};
    xn_framing_walk state = {bytes, bytes + sizeof bytes - 1};
    for (int i = 0; i < 3; i++)
        xn_framing_walk_field(&framing, &state, state.at);
    xn_framing_walk_end(&framing, &state);
    ck_assert_int_eq(framing.status, 0);
    ck_assert_str_eq(bytes + 3, "b");
    ck_assert_str_eq(bytes + 10, "");
}
END_TEST

START_TEST(targets) {
    static const struct {
        const char *text;
        xn_target_form form;
        size_t prefix;
        bool has_path;
    } table[] = {
        {"/", XN_TARGET_ORIGIN, 0, true},
        {"//a/b", XN_TARGET_ORIGIN, 0, true},
        {"*", XN_TARGET_ASTERISK, 0, true},
        {"http://a/b", XN_TARGET_ABSOLUTE, 8, true},
        {"https://[::1]:1/b", XN_TARGET_ABSOLUTE, 15, true},
        {"http://a", XN_TARGET_ABSOLUTE, 8, false},
        {"http://a?/b", XN_TARGET_ABSOLUTE, 8, false},
        {"a:1", XN_TARGET_AUTHORITY, 0, false},
        {"http://%41/b", XN_TARGET_BAD, 0, false},
        {"http:///b", XN_TARGET_BAD, 0, false},
        {"http:/", XN_TARGET_BAD, 0, false},
        {"", XN_TARGET_BAD, 0, false},
        {"**", XN_TARGET_BAD, 0, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        xn_target target = xn_target_read(table[i].text, strlen(table[i].text));
        ck_assert_msg(target.form == table[i].form && target.prefix == table[i].prefix &&
                          target.has_path == table[i].has_path &&
                          (target.form != XN_TARGET_BAD || target.wrong),
                      "%s: form %d, prefix %zu", table[i].text, (int)target.form, target.prefix);
    }
}
END_TEST

/* Of each body's fields: refused (-1), none (0), by length (1), chunked (2). */
START_TEST(lengths) {
    static const struct {
        const char *first, *second, *coding;
        bool old;
        int body;
        size_t length;
    } table[] = {
        {NULL, NULL, NULL, false, 0, 0},
        {"5", NULL, NULL, false, 1, 5},
        {" \t5 \t", NULL, NULL, false, 1, 5},
        {"9223372036854775807", NULL, NULL, false, 1, 9223372036854775807u},
        {"9223372036854775808", NULL, NULL, false, -1, 0},
        {"", NULL, NULL, false, -1, 0},
        {"5", "5", NULL, false, -1, 0},
        {"5", NULL, "chunked", false, -1, 0},
        {"+5", NULL, NULL, false, -1, 0},
        {NULL, NULL, "chunked", false, 2, 0},
        {NULL, NULL, " Chunked", false, 2, 0},
        {NULL, NULL, "chunked", true, -1, 0},
        /* 0.9 of the library does not know this one for chunked */
        {NULL, NULL, "chunked ", false, -1, 0},
        {NULL, NULL, "gzip, chunked", false, -1, 0},
        {NULL, NULL, "", false, -1, 0},
    };
    const char *const length = "Content-Length", *const coding = "transfer-encoding";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *const fields[][2] = {
            {length, table[i].first}, {length, table[i].second}, {coding, table[i].coding}};
        xn_framing framing = {0};
        xn_framing_field(&framing, "Host", 4, "a", 1);
        for (int f = 0; f < 3; f++)
            if (fields[f][1])
                xn_framing_field(&framing, fields[f][0], strlen(fields[f][0]), fields[f][1],
                                 strlen(fields[f][1]));
        xn_framing_finish(&framing, table[i].old);
        ck_assert_int_eq(framing.status == 0, table[i].body >= 0);
        ck_assert_int_eq(framing.has_length, table[i].body == 1);
        ck_assert_int_eq(framing.chunked, table[i].body == 2);
        ck_assert_uint_eq(framing.length, table[i].length);
    }
}
END_TEST

XN_SUITE(framing) {
    Suite *s = suite_create("framing");
    TCase *t = tcase_create("framing");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, mutated_sections);
    tcase_add_test(t, random_memory);
    tcase_add_test(t, blanks_behind_values);
    tcase_add_test(t, targets);
    tcase_add_test(t, lengths);
    suite_add_tcase(s, t);
    return s;
}
