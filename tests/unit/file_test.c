/* Whole files: what is read, where the limit is, and what the messages say. */
#include "file.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of that many letters. */
static int make_file(size_t length) {
    int fd = memfd_create("file_test", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    for (size_t i = 0; i < length; i++)
        ck_assert_int_eq(write(fd, &(char){(char)('a' + i % 26)}, 1), 1);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

START_TEST(up_to_the_limit) {
    enum { MOST = 100 };
    static const size_t lengths[] = {0, 1, MOST - 1, MOST, MOST + 1, 5 * MOST};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int fd = make_file(lengths[i]);
        char *text = NULL;
        size_t length = 12345;
        xn_error error = {0};
        xn_status status =
            xn_file_read(fd, "config", "--config a.conf", MOST, &text, &length, &error);
        if (lengths[i] > MOST) {
            ck_assert_int_eq(status, XN_ERR_MALFORMED);
            ck_assert_str_eq(error.field, "config");
            ck_assert_ptr_nonnull(strstr(error.message, "--config a.conf has more than 100 bytes"));
            ck_assert_ptr_null(text);
        } else {
            ck_assert_int_eq(status, XN_OK);
            ck_assert_uint_eq(length, lengths[i]);
            for (size_t at = 0; at < length; at++)
                ck_assert_int_eq(text[at], (char)('a' + at % 26));
            ck_assert_int_eq(text[length], 0);
        }
        xn_mem_free(text);
        close(fd);
    }
}
END_TEST

/* A pipe gives its bytes in pieces. */
START_TEST(in_pieces) {
    int ends[2];
    char bytes[8] = "";
    ck_assert_int_eq(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    ck_assert_int_eq(write(ends[1], "abc", 3), 3);
    ck_assert_int_eq(write(ends[1], "de", 2), 2);
    ck_assert_int_eq(xn_file_fill(ends[0], bytes, 4, NULL), 4);
    ck_assert_mem_eq(bytes, "abcd", 4);
    ck_assert_int_eq(xn_file_fill(ends[0], bytes, 4, NULL),
                     -1); /* 'e', and then it would have to wait */
    close(ends[1]);
    ck_assert_int_eq(xn_file_fill(ends[0], bytes, 4, NULL), 0);
    close(ends[0]);
}
END_TEST

START_TEST(no_file) {
    char *text = NULL;
    size_t length = 0;
    xn_error error = {0};
    int fd = open("/tmp", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(xn_file_read(fd, "tls-key", "--tls-key /tmp", 10, &text, &length, &error),
                     XN_ERR_IO);
    ck_assert_str_eq(error.message, "--tls-key /tmp: Is a directory");
    close(fd);
    ck_assert_str_eq(xn_file_kind(S_IFDIR | 0755), "a directory");
    ck_assert_str_eq(xn_file_kind(S_IFIFO), "a FIFO");
    ck_assert_str_eq(xn_file_kind(S_IFSOCK), "a socket");
    ck_assert_str_eq(xn_file_kind(S_IFCHR), "a device");
    ck_assert_str_eq(xn_file_kind(S_IFREG | 0600), "a file");
}
END_TEST

XN_SUITE(file) {
    Suite *s = suite_create("file");
    TCase *t = tcase_create("file");
    tcase_add_test(t, up_to_the_limit);
    tcase_add_test(t, in_pieces);
    tcase_add_test(t, no_file);
    suite_add_tcase(s, t);
    return s;
}
