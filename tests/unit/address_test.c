/* A client's address as text, and lines that are written at a bounded rate. */
#include "address.h"
#include "bounded_log.h"
#include "clock.h"
#include "xn_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const struct {
    int family;
    const char *host, *text;
} addresses[] = {
    {AF_INET, "127.0.0.1", "127.0.0.1:8081"},
    {AF_INET, "255.255.255.255", "255.255.255.255:8081"},
    {AF_INET6, "::1", "[::1]:8081"},
    {AF_INET6, "2001:db8:1111:2222:3333:4444:5555:6666",
     "[2001:db8:1111:2222:3333:4444:5555:6666]:8081"},
    {AF_INET6, "::ffff:10.1.2.3", "10.1.2.3:8081"},
};

START_TEST(texts_of_addresses) {
    char text[XN_ADDRESS_MAX];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(8081)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(8081)};
    bool four = addresses[_i].family == AF_INET;
    ck_assert_int_eq(inet_pton(addresses[_i].family, addresses[_i].host,
                               four ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr),
                     1);
    xn_address_text(four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, text);
    ck_assert_str_eq(text, addresses[_i].text);
}
END_TEST

static void identity_of(const char *host, unsigned char out[XN_CLIENT_IDENTITY_BYTES]) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    bool four = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    ck_assert(four || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1);
    xn_address_identity(four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, out);
}

START_TEST(who_is_one_client) {
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"10.1.2.3", "10.1.2.3", true},
        {"10.1.2.3", "10.1.2.4", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::ffff:10.1.2.3", "10.1.2.3", true},
        {"::ffff:10.1.2.3", "::ffff:10.1.2.4", false},
    };
    unsigned char a[XN_CLIENT_IDENTITY_BYTES], b[XN_CLIENT_IDENTITY_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        identity_of(rows[i].a, a);
        identity_of(rows[i].b, b);
        ck_assert_msg(!memcmp(a, b, sizeof a) == rows[i].same, "%s %s", rows[i].a, rows[i].b);
    }
}
END_TEST

START_TEST(no_address) {
    char text[XN_ADDRESS_MAX];
    const struct sockaddr_un local = {.sun_family = AF_UNIX};
    xn_address_text(NULL, text);
    ck_assert_str_eq(text, "-");
    xn_address_text((const struct sockaddr *)&local, text);
    ck_assert_str_eq(text, "-");
}
END_TEST

/* By a clock of the test's own: 3 a second, and what is over is counted once. */
START_TEST(a_bounded_rate) {
    xn_bounded_log log = XN_BOUNDED_LOG("things", 3);
    int64_t now = 5 * XN_NS_PER_S;
    for (int second = 0; second < 3; second++, now += XN_NS_PER_S) {
        for (int i = 0; i < 10; i++)
            ck_assert_int_eq(xn_bounded_log_may(&log, now + i), i < 3);
        ck_assert_int_eq(log.kept_back, 7);
        xn_bounded_log_tick(&log, now + XN_NS_PER_S / 2); /* its second is not over */
        ck_assert_int_eq(log.kept_back, 7);
    }
    xn_bounded_log_tick(&log, now + XN_NS_PER_S);
    ck_assert_int_eq(log.kept_back, 0);
    ck_assert(xn_bounded_log_may(&log, now + XN_NS_PER_S + 1));
}
END_TEST

XN_SUITE(address) {
    Suite *s = suite_create("address");
    TCase *t = tcase_create("address");
    tcase_add_loop_test(t, texts_of_addresses, 0, sizeof addresses / sizeof *addresses);
    tcase_add_test(t, who_is_one_client);
    tcase_add_test(t, no_address);
    tcase_add_test(t, a_bounded_rate);
    suite_add_tcase(s, t);
    return s;
}
