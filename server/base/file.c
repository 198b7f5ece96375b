/* file.c: see file.h. */
#include "file.h"

#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK ((size_t)8 << 20) /* between two looks whether to stop */

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

/* Links are followed while they stay below the folder. Where the system cannot tell (before Linux
 * 5.6), none is. */
static int open_below(int folder, const char *name, int flags) {
    const struct open_how how = {.flags = (uint64_t)flags,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const long opened = syscall(SYS_openat2, folder, name, &how, sizeof how);
    if (opened < 0 && (errno == ENOSYS || errno == EPERM))
        return openat(folder, name, flags | O_NOFOLLOW);
    return (int)opened;
}

xn_file_opened xn_file_open_plain(int folder, const char *name, bool follow, int *fd,
                                  struct stat *info) {
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
    if (fstatat(folder, name, info, follow ? 0 : AT_SYMLINK_NOFOLLOW))
        return XN_FILE_FAILED;
    if (!S_ISREG(info->st_mode))
        return XN_FILE_OTHER;
    int opened = follow ? open_below(folder, name, flags) : openat(folder, name, flags);
    if (opened < 0)
        return XN_FILE_FAILED;
    const bool known = !fstat(opened, info);
    if (known && S_ISREG(info->st_mode)) {
        *fd = opened;
        return XN_FILE_OPEN;
    }
    int cause = errno;
    close(opened);
    errno = cause;
    return known ? XN_FILE_OTHER : XN_FILE_FAILED;
}

bool xn_file_read_start(int fd, void *bytes, size_t length, const atomic_bool *stop, size_t *got) {
    *got = 0;
    while (*got < length && !(stop && atomic_load(stop))) {
        size_t most = length - *got < CHUNK ? length - *got : CHUNK;
        ssize_t n = pread(fd, (char *)bytes + *got, most, (off_t)*got);
        if (n < 0 && errno != EINTR)
            return false;
        if (n == 0)
            break;
        *got += n > 0 ? (size_t)n : 0;
    }
    return true;
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
