/* weights_dir_file.c: see weights_dir_file.h. */
#include "weights_dir_file.h"

#include "clock.h"
#include "log.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define TEMPORARY_START ".xnord-"
#define TEMPORARY_END ".tmp"
#define TEMPORARY_OLD_S 1800 /* no writer takes so long, nor are clocks of hosts so far apart */

static void file_of(const char *name, char file[NAME_MAX + 1]) {
    snprintf(file, NAME_MAX + 1, "%.*s" XN_WEIGHTS_SUFFIX,
             (int)(NAME_MAX - strlen(XN_WEIGHTS_SUFFIX)), name);
}

/* ---- the folder ---- */

static xn_status fail_folder(const char *path, const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "weights-dir", "--weights-dir %.200s: %s: %s", path, what,
                   strerror(errno));
}

/* -1: errno says why. */
static int create_temporary(const xn_folder *folder, char name[48]) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -1;
    snprintf(name, 48, TEMPORARY_START "%016llx" TEMPORARY_END, (unsigned long long)random);
    return openat(folder->fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
}

xn_status xn_folder_open(xn_folder *folder, const char *path, xn_error *error) {
    struct stat info;
    char name[48];
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0 || fstat(folder->fd, &info))
        return fail_folder(path, "it cannot be opened", error);
    snprintf(folder->path, sizeof folder->path, "%s", path); /* open takes no longer one */
    folder->id = xn_file_id_of(&info);
    const int fd = create_temporary(folder, name);
    if (fd >= 0 && !close(fd) && !unlinkat(folder->fd, name, 0))
        return XN_OK;
    if (errno != EROFS && errno != EACCES && errno != EPERM)
        return fail_folder(path, "a file cannot be made in it", error);
    xn_log(XN_LOG_WARN, NULL,
           "--weights-dir %.200s cannot be written (%s): the weights in it are served, PUT and "
           "DELETE are refused",
           path, strerror(errno));
    return XN_OK;
}

void xn_folder_close(xn_folder *folder) {
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

xn_status xn_folder_check(const xn_folder *folder, xn_error *error) {
    struct stat info;
    if (stat(folder->path, &info))
        return xn_fail(error, XN_ERR_IO, "weights-dir", "the folder of --weights-dir is gone: %s",
                       strerror(errno));
    if (info.st_dev != folder->id.device || info.st_ino != folder->id.inode)
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

static xn_status fail_file(const char *verb, const char *file, xn_error *error) {
    switch (errno) {
    case ENOENT:
        return xn_fail(error, XN_ERR_NOT_FOUND, "weights-dir", "there is no %.160s", file);
    case EISDIR:
        return xn_fail(error, XN_ERR_UNSUPPORTED, "name",
                       "%.160s in --weights-dir is a folder; remove it or choose another name",
                       file);
    case EXDEV:
        return xn_fail(error, XN_ERR_IO, "weights-dir",
                       "it is a link that leaves the folder; a link may lead to what lies in "
                       "--weights-dir");
    case EROFS:
        return xn_fail(error, XN_ERR_IO, "weights-dir",
                       "cannot %s %.160s: --weights-dir is read-only here; the weights in it are "
                       "served, but can be changed only where the folder is writable",
                       verb, file);
    default:
        return xn_fail(error, XN_ERR_IO, "weights-dir", "cannot %s %.160s in --weights-dir: %s",
                       verb, file, strerror(errno));
    }
}

xn_status xn_folder_stat(const xn_folder *folder, const char *name, xn_file_id *id,
                         xn_error *error) {
    char file[NAME_MAX + 1];
    struct stat info;
    file_of(name, file);
    if (!fstatat(folder->fd, file, &info, 0)) {
        *id = xn_file_id_of(&info);
        return XN_OK;
    }
    if (errno != ENOENT || fstatat(folder->fd, file, &info, AT_SYMLINK_NOFOLLOW))
        return fail_file("look at", file, error);
    return xn_fail(error, XN_ERR_IO, "weights-dir", "it is a link to what is not there");
}

xn_status xn_folder_remove(const xn_folder *folder, const char *name, xn_error *error) {
    char file[NAME_MAX + 1];
    file_of(name, file);
    return unlinkat(folder->fd, file, 0) ? fail_file("remove", file, error) : XN_OK;
}

/* ---- temporary files ---- */

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

xn_status xn_temporary_write(const xn_folder *folder, const xn_tensor *const tensors[3],
                             xn_temporary *out, xn_error *error) {
    xn_weights_file_head head;
    xn_weights_file_begin(tensors[0], tensors[1], tensors[2], &head);
    out->checksum = head.checksum;
    out->fd = create_temporary(folder, out->file);
    if (out->fd < 0)
        return fail_file("write", "the weights' file", error);
    bool written = write_all(out->fd, head.bytes, head.length);
    for (int i = 0; written && i < 3; i++)
        written = !tensors[i] || write_all(out->fd, tensors[i]->data, tensors[i]->bytes);
    if (written && !fsync(out->fd))
        return XN_OK;
    xn_status status = fail_file("write", "the weights' file", error);
    xn_temporary_end(folder, out, false);
    return status;
}

xn_status xn_temporary_rename(const xn_folder *folder, const xn_temporary *temporary,
                              const char *name, xn_file_id *id, xn_error *error) {
    char file[NAME_MAX + 1];
    struct stat info = {0};
    file_of(name, file);
    if (renameat(folder->fd, temporary->file, folder->fd, file))
        return fail_file("put in place", file, error);
    if (!fstat(temporary->fd, &info)) /* else the next look reads it */
        *id = xn_file_id_of(&info);
    return XN_OK;
}

void xn_temporary_end(const xn_folder *folder, const xn_temporary *temporary, bool renamed) {
    close(temporary->fd);
    if (!renamed)
        unlinkat(folder->fd, temporary->file, 0);
}

bool xn_temporary_expire(const xn_folder *folder, const char *file) {
    const size_t length = strlen(file), end = strlen(TEMPORARY_END);
    struct stat info;
    if (strncmp(file, TEMPORARY_START, strlen(TEMPORARY_START)) != 0 || length < end ||
        strcmp(file + length - end, TEMPORARY_END) != 0)
        return false;
    if (!fstatat(folder->fd, file, &info, 0) &&
        xn_wall_ns() / XN_NS_PER_S - info.st_mtim.tv_sec > TEMPORARY_OLD_S &&
        !unlinkat(folder->fd, file, 0))
        xn_log(XN_LOG_INFO, NULL, "weights-dir: %s removed: a writer that is gone left it", file);
    return true;
}

/* ---- reading ---- */

static xn_status open_plain(const xn_folder *folder, const char *file, int *out, struct stat *info,
                            xn_error *error) {
    switch (xn_file_open_plain(folder->fd, folder->fd, file, out, info)) {
    case XN_FILE_OPEN:
        return XN_OK;
    case XN_FILE_OTHER:
        return xn_fail(error, XN_ERR_MALFORMED, "weights-dir", "it is %s, not a plain file",
                       xn_file_kind(info->st_mode));
    default:
        return fail_file("read", file, error);
    }
}

static xn_status read_checksum(const char *file, int fd, uint64_t *checksum, xn_error *error) {
    unsigned char start[XN_WEIGHTS_FILE_MARK_BYTES];
    size_t got = 0;
    if (!xn_file_read_start(fd, start, sizeof start, NULL, &got))
        return fail_file("read", file, error);
    return xn_weights_file_mark(start, got, checksum, error);
}

xn_status xn_folder_checksum(const xn_folder *folder, const char *name, uint64_t *checksum,
                             xn_error *error) {
    char file[NAME_MAX + 1];
    struct stat info;
    int fd = -1;
    file_of(name, file);
    xn_status status = open_plain(folder, file, &fd, &info, error);
    if (status)
        return status;
    status = read_checksum(file, fd, checksum, error);
    close(fd);
    return status;
}

static xn_status read_whole(const char *file, int fd, const struct stat *info,
                            const atomic_bool *stop, xn_loaded_file *out, xn_error *error) {
    const size_t size = (size_t)info->st_size;
    out->id = xn_file_id_of(info);
    out->bytes = xn_mem_alloc(size);
    if (!out->bytes)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights-dir", "no memory for its %zu bytes", size);
    switch (xn_file_read_whole(fd, info, out->bytes, stop)) {
    case XN_FILE_WHOLE:
        return XN_OK;
    case XN_FILE_CHANGED:
        return xn_fail(error, XN_ERR_IO, "weights-dir", "it changed while it was read");
    default:
        return fail_file("read", file, error);
    }
}

xn_status xn_loaded_file_read(const xn_folder *folder, const char *name,
                              const xn_proto_limits *limits, const atomic_bool *stop,
                              xn_loaded_file *out, xn_error *error) {
    char file[NAME_MAX + 1];
    struct stat info;
    xn_weights_request request;
    int fd = -1;
    *out = (xn_loaded_file){0};
    file_of(name, file);
    xn_status status = open_plain(folder, file, &fd, &info, error);
    if (status)
        return status;
    status = read_checksum(file, fd, &out->checksum, error);
    if (!status)
        status = read_whole(file, fd, &info, stop, out, error);
    close(fd);
    if (!status)
        status = xn_weights_file_parse(out->bytes, (size_t)info.st_size, limits, &request, error);
    if (!status)
        status = xn_weights_tensors_read(&request.weights, &request.scale, &request.bias,
                                         &out->tensors, error);
    return status;
}

void xn_loaded_file_free(xn_loaded_file *loaded) {
    xn_weights_tensors_free(&loaded->tensors);
    xn_mem_free(loaded->bytes);
}
