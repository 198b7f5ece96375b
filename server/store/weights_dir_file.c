/* weights_dir_file.c: the files of --weights-dir: a folder, a file written aside, a file read. All
 * by names within the open folder; nothing here knows the store. */
#include "weights_dir_internal.h"

#include "clock.h"
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define ASIDE_START ".xnord-"
#define ASIDE_END ".tmp"

static int64_t ns_of(const struct timespec *t) {
    return (int64_t)t->tv_sec * XN_NS_PER_S + t->tv_nsec;
}

static xn_file_id id_of(const struct stat *info) {
    return (xn_file_id){info->st_dev, info->st_ino, info->st_size, info->st_mtim, info->st_ctim};
}

bool xn_file_id_equal(const xn_file_id *a, const xn_file_id *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           ns_of(&a->modified) == ns_of(&b->modified);
}

/* ---- the folder ---- */

static xn_status fail_folder(const char *path, const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "weights-dir", "--weights-dir %.200s: %s: %s", path, what,
                   strerror(errno));
}

static bool make_aside_name(char name[48], const char *infix) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return false;
    snprintf(name, 48, ASIDE_START "%s%016llx" ASIDE_END, infix, (unsigned long long)random);
    return true;
}

bool xn_aside_is(const char *file) {
    size_t length = strlen(file), start = strlen(ASIDE_START), end = strlen(ASIDE_END);
    return length > start + end && !memcmp(file, ASIDE_START, start) &&
           !memcmp(file + length - end, ASIDE_END, end);
}

/* Makes a file and learns from it: that one can be made, whether names keep their case, and what
 * the file system's clock says. */
static xn_status probe(xn_folder *folder, xn_error *error) {
    char name[48], other[48];
    struct stat info, twin;
    struct timespec now;
    xn_status status = XN_OK;
    if (!make_aside_name(name, "aB"))
        return fail_folder(folder->path, "no random number", error);
    memcpy(other, name, sizeof other);
    memcpy(strstr(other, "aB"), "Ab", 2);
    int fd = openat(folder->fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_folder(folder->path, "a file cannot be made in it", error);
    clock_gettime(CLOCK_REALTIME, &now);
    if (fstat(fd, &info))
        status = fail_folder(folder->path, "a file made in it cannot be looked at", error);
    else
        folder->clock_skew_ns = ns_of(&info.st_mtim) - ns_of(&now);
    folder->ignores_case = !status && !fstatat(folder->fd, other, &twin, 0) &&
                           twin.st_dev == info.st_dev && twin.st_ino == info.st_ino;
    close(fd);
    if (unlinkat(folder->fd, name, 0) && !status)
        status = fail_folder(folder->path, "a file made in it cannot be removed", error);
    return status;
}

xn_status xn_folder_open(xn_folder *folder, const char *path, xn_error *error) {
    struct stat info;
    folder->fd = -1;
    if (snprintf(folder->path, sizeof folder->path, "%s", path) >= (int)sizeof folder->path) {
        errno = ENAMETOOLONG;
        return fail_folder(path, "it cannot be opened", error);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return xn_fail(error, XN_ERR_IO, "weights-dir",
                       "--weights-dir %.200s: there is no such folder; make it first", path);
    if (fd < 0)
        return fail_folder(path, "it cannot be opened", error);
    folder->fd = fd;
    xn_status status = XN_OK;
    if (fstat(fd, &info))
        status = fail_folder(path, "it cannot be looked at", error);
    else {
        folder->device = info.st_dev;
        folder->inode = info.st_ino;
        status = probe(folder, error);
    }
    if (status)
        xn_folder_close(folder);
    return status;
}

void xn_folder_close(xn_folder *folder) {
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

/* From here on messages reach clients, who need not know where the folder is. */

xn_status xn_folder_check(const xn_folder *folder, xn_error *error) {
    struct stat info;
    if (stat(folder->path, &info))
        return xn_fail(error, XN_ERR_IO, "weights-dir", "the folder of --weights-dir is gone: %s",
                       strerror(errno));
    if (info.st_dev != folder->device || info.st_ino != folder->inode)
        return xn_fail(error, XN_ERR_IO, "weights-dir",
                       "the folder of --weights-dir is another folder than when the daemon was "
                       "started; restart it if that is meant");
    return XN_OK;
}

xn_status xn_folder_sync(const xn_folder *folder, const char *what, xn_error *error) {
    /* EINVAL: a file system that does not know how to, and so has nothing to wait for. */
    if (!fsync(folder->fd) || errno == EINVAL)
        return XN_OK;
    return xn_fail(error, XN_ERR_IO, "weights-dir",
                   "%s, but that may not outlast a loss of power: the folder of --weights-dir "
                   "cannot be synchronised: %s",
                   what, strerror(errno));
}

int64_t xn_folder_now_ns(const xn_folder *folder) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ns_of(&now) + folder->clock_skew_ns;
}

static xn_status fail_file(const char *verb, const char *file, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "weights-dir", "cannot %s %.160s in --weights-dir: %s", verb,
                   file, strerror(errno));
}

/* The same for a file that others may have removed. */
static xn_status fail_lookup(const char *verb, const char *file, xn_error *error) {
    if (errno == ENOENT)
        return xn_fail(error, XN_ERR_NOT_FOUND, "weights-dir", "there is no %.160s", file);
    return fail_file(verb, file, error);
}

xn_status xn_folder_stat(const xn_folder *folder, const char *file, xn_file_id *id,
                         xn_error *error) {
    struct stat info;
    if (fstatat(folder->fd, file, &info, 0)) {
        int cause = errno;
        /* A link to nothing is there all the same. */
        if (cause == ENOENT && !fstatat(folder->fd, file, &info, AT_SYMLINK_NOFOLLOW))
            return xn_fail(error, XN_ERR_IO, "weights-dir", "it is a link to what is not there");
        errno = cause;
        return fail_lookup("look at", file, error);
    }
    *id = id_of(&info);
    return XN_OK;
}

xn_status xn_folder_remove(const xn_folder *folder, const char *file, xn_error *error) {
    return unlinkat(folder->fd, file, 0) ? fail_lookup("remove", file, error) : XN_OK;
}

/* ---- written aside ---- */

static bool write_all(int fd, const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Everything to the disk; a network file system may report only at the end that it had no room. */
static bool finish(int fd, xn_file_id *id) {
    struct stat info;
    bool done = !fsync(fd) && !fstat(fd, &info);
    int cause = errno;
    if (close(fd) && done)
        return false;
    errno = cause;
    if (done)
        *id = id_of(&info);
    return done;
}

xn_status xn_aside_write(const xn_folder *folder, const xn_weights_file_head *head,
                         const xn_tensor *const tensors[3], xn_aside *out, xn_error *error) {
    if (!make_aside_name(out->file, ""))
        return fail_file("write", "the weights' file", error);
    int fd = openat(folder->fd, out->file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_file("write", "the weights' file", error);
    bool written = write_all(fd, head->bytes, head->length);
    for (int i = 0; written && i < 3; i++)
        written = !tensors[i] || write_all(fd, tensors[i]->data, tensors[i]->bytes);
    int cause = errno;
    bool finished = finish(fd, &out->id);
    if (written && finished)
        return XN_OK;
    if (!written)
        errno = cause;
    fail_file("write", "the weights' file", error);
    xn_aside_remove(folder, out);
    return XN_ERR_IO;
}

xn_status xn_aside_rename(const xn_folder *folder, const xn_aside *aside, const char *file,
                          xn_error *error) {
    if (renameat(folder->fd, aside->file, folder->fd, file))
        return fail_file("put in place", file, error);
    return XN_OK;
}

void xn_aside_remove(const xn_folder *folder, const xn_aside *aside) {
    unlinkat(folder->fd, aside->file, 0);
}

/* ---- read ---- */

static xn_status open_plain(const xn_folder *folder, const char *file, int *out, struct stat *info,
                            xn_error *error) {
    switch (xn_file_open_plain(folder->fd, file, true, out, info)) {
    case XN_FILE_OPEN:
        return XN_OK;
    case XN_FILE_OTHER:
        return xn_fail(error, XN_ERR_MALFORMED, "weights-dir", "it is %s, not a plain file",
                       xn_file_kind(info->st_mode));
    default:
        return fail_lookup("read", file, error);
    }
}

static xn_status read_mark(const char *file, int fd, uint64_t *checksum, xn_error *error) {
    unsigned char start[XN_WEIGHTS_FILE_MARK_BYTES];
    size_t got = 0;
    if (!xn_file_read_start(fd, start, sizeof start, NULL, &got))
        return fail_file("read", file, error);
    return xn_weights_file_mark(start, got, checksum, error);
}

xn_status xn_folder_mark(const xn_folder *folder, const char *file, uint64_t *checksum,
                         xn_error *error) {
    struct stat info;
    int fd = -1;
    xn_status status = open_plain(folder, file, &fd, &info, error);
    if (status)
        return status;
    status = read_mark(file, fd, checksum, error);
    close(fd);
    return status;
}

static xn_status read_whole(const char *file, int fd, size_t size, const atomic_bool *stop,
                            xn_loaded_file *out, xn_error *error) {
    struct stat info;
    size_t got = 0;
    out->bytes = xn_mem_alloc(size);
    if (!out->bytes)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights-dir", "no memory for its %zu bytes", size);
    if (!xn_file_read_start(fd, out->bytes, size, stop, &got) || fstat(fd, &info))
        return fail_file("read", file, error);
    xn_file_id now = id_of(&info);
    if (got != size || !xn_file_id_equal(&now, &out->id))
        return xn_fail(error, XN_ERR_IO, "weights-dir", "it changed while it was read");
    return XN_OK;
}

xn_status xn_loaded_file_read(const xn_folder *folder, const char *file,
                              const xn_proto_limits *limits, int64_t max_bytes,
                              const atomic_bool *stop, xn_loaded_file *out, xn_error *error) {
    struct stat info;
    xn_weights_request request;
    int fd = -1;
    memset(out, 0, sizeof *out);
    xn_status status = open_plain(folder, file, &fd, &info, error);
    if (status)
        return status;
    out->id = id_of(&info);
    status = read_mark(file, fd, &out->checksum, error);
    /* Weights take at least as much memory as the file's values. */
    if (!status && info.st_size - XN_PROTO_MAX_HEADER_BYTES - 8 > max_bytes)
        status = xn_fail_limit(error, "max-weights-bytes", "weights",
                               "it has %lld bytes; --max-weights-bytes is %lld",
                               (long long)info.st_size, (long long)max_bytes);
    if (!status)
        status = read_whole(file, fd, (size_t)info.st_size, stop, out, error);
    close(fd);
    if (!status)
        status = xn_weights_file_parse(out->bytes, (size_t)info.st_size, limits, &request, error);
    if (!status)
        status = xn_weights_given_take(&request.weights, &request.scale, &request.bias, &out->given,
                                       error);
    if (status) {
        xn_loaded_file_free(out);
        return status;
    }
    return XN_OK;
}

void xn_loaded_file_free(xn_loaded_file *loaded) {
    xn_weights_given_free(&loaded->given);
    xn_mem_free(loaded->bytes);
    memset(loaded, 0, sizeof *loaded);
}
