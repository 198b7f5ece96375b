/* file.c: see file.h. */
#include "file.h"

#include "clock.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FD_PATH "/proc/self/fd/%d"
enum { FD_PATH_BYTES = sizeof FD_PATH + 10 };
#define CHUNK ((size_t)8 << 20) /* between two looks whether to stop */

const char *xn_file_kind(mode_t mode) {
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

xn_file_id xn_file_id_of(const struct stat *info) {
    return (xn_file_id){info->st_dev, info->st_ino, info->st_size,
                        (int64_t)info->st_ctim.tv_sec * XN_NS_PER_S + info->st_ctim.tv_nsec};
}

bool xn_file_id_equal(const xn_file_id *a, const xn_file_id *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed_ns == b->changed_ns;
}

/* ---- opening ---- */

static void close_after_failure(int fd) {
    const int cause = errno;
    close(fd);
    errno = cause;
}

/* The path of what is open, without links; false with errno. */
static bool path_of(int fd, char path[PATH_MAX]) {
    char name[FD_PATH_BYTES];
    snprintf(name, sizeof name, FD_PATH, fd);
    const ssize_t length = readlink(name, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool is_within(int root, int fd) {
    char folder[PATH_MAX], path[PATH_MAX];
    if (!path_of(root, folder) || !path_of(fd, path))
        return false;
    const size_t length = strlen(folder);
    errno = EXDEV;
    return !strncmp(path, folder, length) &&
           (!path[length] || path[length] == '/' || folder[length - 1] == '/');
}

int xn_file_open_within(int root, int folder, const char *name, int flags) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW))
        return -1;
    if (!S_ISLNK(info.st_mode))
        return openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW);
    const int fd = openat(folder, name, flags | O_CLOEXEC);
    if (fd < 0 || is_within(root, fd))
        return fd;
    close_after_failure(fd);
    return -1;
}

static xn_file_opened open_if_plain(int folder, const char *name, int flags, int *out,
                                    struct stat *info) {
    if (!S_ISREG(info->st_mode))
        return XN_FILE_OTHER;
    const int fd = openat(folder, name, flags | O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return XN_FILE_FAILED;
    const bool known = !fstat(fd, info);
    if (known && S_ISREG(info->st_mode)) {
        *out = fd;
        return XN_FILE_OPEN;
    }
    close_after_failure(fd);
    return known ? XN_FILE_OTHER : XN_FILE_FAILED;
}

xn_file_opened xn_file_open_plain(int root, int folder, const char *name, int *out,
                                  struct stat *info) {
    char path[FD_PATH_BYTES];
    if (fstatat(folder, name, info, AT_SYMLINK_NOFOLLOW))
        return XN_FILE_FAILED;
    if (!S_ISLNK(info->st_mode))
        return open_if_plain(folder, name, O_NOFOLLOW, out, info);
    const int found = xn_file_open_within(root, folder, name, O_PATH);
    if (found < 0)
        return XN_FILE_FAILED;
    snprintf(path, sizeof path, FD_PATH, found);
    const xn_file_opened opened =
        fstat(found, info) ? XN_FILE_FAILED : open_if_plain(AT_FDCWD, path, 0, out, info);
    close_after_failure(found);
    return opened;
}

DIR *xn_file_names(int folder) {
    const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = own >= 0 ? fdopendir(own) : NULL;
    if (!names && own >= 0)
        close_after_failure(own);
    return names;
}

/* ---- reading and writing ---- */

ssize_t xn_file_fill(int fd, void *bytes, size_t most, const atomic_bool *stop) {
    size_t have = 0;
    while (have < most && !(stop && atomic_load(stop))) {
        const size_t chunk = most - have < CHUNK ? most - have : CHUNK;
        const ssize_t got = read(fd, (char *)bytes + have, chunk);
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

xn_file_read_result xn_file_read_whole(int fd, const struct stat *before, void *bytes,
                                       const atomic_bool *stop) {
    struct stat after;
    const ssize_t length = before->st_size;
    const ssize_t got = lseek(fd, 0, SEEK_SET) ? -1 : xn_file_fill(fd, bytes, (size_t)length, stop);
    if (got < 0 || fstat(fd, &after))
        return XN_FILE_UNREADABLE;
    const xn_file_id was = xn_file_id_of(before), is = xn_file_id_of(&after);
    return got == length && xn_file_id_equal(&was, &is) ? XN_FILE_WHOLE : XN_FILE_CHANGED;
}

xn_status xn_file_read(int fd, const char *setting, const char *name, size_t most, char **text,
                       size_t *length, xn_error *error) {
    xn_status status = XN_OK;
    char *bytes = xn_mem_alloc(most + 1);
    if (!bytes)
        return xn_fail(error, XN_ERR_NO_MEMORY, setting, "no memory to read %.240s", name);
    ssize_t got = xn_file_fill(fd, bytes, most + 1, NULL);
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

bool xn_file_write(int fd, const void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        const ssize_t n = write(fd, (const char *)bytes + done, length - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}
