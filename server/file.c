/* file.c: see file.h. */
#include "file.h"

#include "xn_mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *xn_file_kind(mode_t mode) {
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

ssize_t xn_file_fill(int fd, void *bytes, size_t most) {
    size_t have = 0;
    while (have < most) {
        ssize_t got = read(fd, (char *)bytes + have, most - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (!got)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

xn_status xn_file_read(int fd, const char *setting, const char *name, size_t most, char **text,
                       size_t *length, xn_error *error) {
    xn_status status = XN_OK;
    char *bytes = xn_mem_alloc(most + 1);
    if (!bytes)
        return xn_fail(error, XN_ERR_NO_MEMORY, setting, "no memory to read %.240s", name);
    ssize_t got = xn_file_fill(fd, bytes, most + 1);
    if (got < 0)
        status = xn_fail(error, XN_ERR_IO, setting, "%.240s: %s", name, strerror(errno));
    else if ((size_t)got > most)
        status = xn_fail(error, XN_ERR_MALFORMED, setting,
                         "%.240s has more than %zu bytes, the most it may have", name, most);
    if (status != XN_OK) {
        explicit_bzero(bytes, most + 1); /* it may be a secret */
        xn_mem_free(bytes);
        return status;
    }
    bytes[got] = '\0';
    *text = bytes;
    *length = (size_t)got;
    return XN_OK;
}
