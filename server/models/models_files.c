/* models_files.c: folders of models and the files in them. Paths come from the configuration and
 * may be links, as volumes are; a name within the repository, and all in a model's folder, is
 * opened relative to the folder it is in and is no link, so nothing leads out of it. */
#include "models_internal.h"

#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders ---- */

/* errno of an open that refused a link, or what is no folder. */
static bool is_no_folder(int cause) {
    return cause == ELOOP || cause == ENOTDIR;
}

static int open_folder(int at, const char *name, bool link) {
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (link ? 0 : O_NOFOLLOW));
}

static xn_status fail_folder(const char *name, int cause, xn_error *error) {
    if (cause == ENOENT)
        return xn_fail(error, XN_ERR_NOT_FOUND, "model", "there is no folder %.200s", name);
    return xn_fail(error, XN_ERR_IO, "model", "%.200s: %s", name,
                   is_no_folder(cause) ? "it is no folder, or a link, which is not followed"
                                       : strerror(cause));
}

static xn_status fail_repository(const char *repository, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "model-repository", "--model-repository %.200s: %s",
                   repository, strerror(errno));
}

static xn_status open_place(const xn_model_place *place, int *fd, xn_error *error) {
    int repository = AT_FDCWD;
    if (place->repository && (repository = open_folder(AT_FDCWD, place->repository, true)) < 0)
        return fail_repository(place->repository, error);
    *fd = open_folder(repository, place->folder, !place->repository);
    int cause = errno;
    if (place->repository)
        close(repository);
    return *fd < 0 ? fail_folder(place->folder, cause, error) : XN_OK;
}

/* A number of a version: digits without a zero in front, few enough for 64 bits. */
static bool is_version(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits > 0 && digits <= 18 && name[0] != '0' && !name[digits];
}

static bool is_higher(const char *version, const char *than) {
    size_t a = strlen(version), b = strlen(than);
    return a != b ? a > b : strcmp(version, than) > 0;
}

/* The names in an open folder, from the start, through a handle of its own. */
static DIR *list(int fd) {
    int own = open_folder(fd, ".", false);
    DIR *names = own >= 0 ? fdopendir(own) : NULL;
    if (!names && own >= 0)
        close(own);
    return names;
}

/* The highest number among the names; "" where there is none. */
static xn_status highest_version(int fd, char version[24], xn_error *error) {
    DIR *names = list(fd);
    if (!names)
        return xn_fail(error, XN_ERR_IO, "model", "the folder cannot be read: %s", strerror(errno));
    version[0] = '\0';
    for (const struct dirent *entry; (entry = readdir(names));)
        if (is_version(entry->d_name) && is_higher(entry->d_name, version))
            snprintf(version, 24, "%.18s", entry->d_name);
    closedir(names);
    return XN_OK;
}

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text) {
    for (; *text; text++)
        h = mix(h, (unsigned char)*text);
    return h;
}

static uint64_t mix_time(uint64_t h, const struct timespec *t) {
    return mix(mix(h, (uint64_t)t->tv_sec), (uint64_t)t->tv_nsec);
}

static uint64_t mark_of(const char *name, const struct stat *info) {
    uint64_t h = mix(mix_text(1, name), (uint64_t)info->st_dev);
    h = mix(mix(h, (uint64_t)info->st_ino), (uint64_t)info->st_size);
    return mix_time(mix_time(h, &info->st_mtim), &info->st_ctim);
}

/* Of all files whose names do not begin with a dot: editors and copiers make such ones. A sum, for
 * the order of names means nothing. Never 0. */
static xn_status mark(xn_model_folder *folder, xn_error *error) {
    struct stat info;
    DIR *names = list(folder->fd);
    if (!names)
        return xn_fail(error, XN_ERR_IO, "model", "the folder cannot be read: %s", strerror(errno));
    uint64_t sum = mix_text(1, folder->version);
    for (const struct dirent *entry; (entry = readdir(names));)
        if (entry->d_name[0] != '.' &&
            !fstatat(folder->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
            !S_ISDIR(info.st_mode))
            sum += mark_of(entry->d_name, &info);
    closedir(names);
    folder->mark = sum ? sum : 1;
    return XN_OK;
}

/* From a model's folder to that of the version to serve, which may be itself. Takes fd. */
static xn_status enter_version(int fd, xn_model_folder *out, xn_error *error) {
    struct stat info;
    char version[24] = "";
    snprintf(out->version, sizeof out->version, XN_MODEL_FIRST_VERSION);
    out->fd = fd;
    if (!fstatat(fd, "config.json", &info, AT_SYMLINK_NOFOLLOW))
        return XN_OK;
    xn_status status = highest_version(fd, version, error);
    if (status != XN_OK)
        return status;
    if (!version[0])
        return xn_fail(error, XN_ERR_MALFORMED, "model",
                       "there is no config.json in its folder, nor a folder whose name is a "
                       "number, with one in it");
    out->fd = open_folder(fd, version, false);
    int cause = errno;
    close(fd);
    memcpy(out->version, version, sizeof out->version);
    return out->fd < 0 ? fail_folder(version, cause, error) : XN_OK;
}

xn_status xn_model_folder_open(const xn_model_place *place, xn_model_folder *out, xn_error *error) {
    int fd = -1;
    *out = (xn_model_folder){.fd = -1};
    xn_status status = open_place(place, &fd, error);
    if (status == XN_OK)
        status = enter_version(fd, out, error);
    if (status == XN_OK)
        status = mark(out, error);
    if (status != XN_OK)
        xn_model_folder_close(out);
    return status;
}

void xn_model_folder_close(xn_model_folder *folder) {
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

/* ---- a file ---- */

static xn_status open_plain(const xn_model_folder *folder, const char *file, int *out,
                            struct stat *info, xn_error *error) {
    const xn_file_opened opened = xn_file_open_plain(folder->fd, file, false, out, info);
    const bool link = opened == XN_FILE_FAILED ? errno == ELOOP : S_ISLNK(info->st_mode);
    if (opened == XN_FILE_OPEN)
        return XN_OK;
    if (opened == XN_FILE_FAILED && errno == ENOENT)
        return xn_fail(error, XN_ERR_MALFORMED, "model", "there is no %.130s in its folder", file);
    if (opened == XN_FILE_FAILED && !link)
        return xn_fail(error, XN_ERR_IO, "model", "%.130s: %s", file, strerror(errno));
    return xn_fail(error, XN_ERR_MALFORMED, "model", "%.130s is %s, not a plain file", file,
                   link ? "a link" : xn_file_kind(info->st_mode));
}

static xn_status check_size(const xn_model_read *what, int64_t size, xn_error *error) {
    if (size <= what->most)
        return XN_OK;
    if (what->limit)
        return xn_fail_limit(error, what->limit, "model", "%.130s has %lld bytes; --%s is %lld",
                             what->file, (long long)size, what->limit, (long long)what->most);
    return xn_fail(error, XN_ERR_MALFORMED, "model", "%.130s has %lld bytes; it may have %lld",
                   what->file, (long long)size, (long long)what->most);
}

static xn_status read_open(const xn_model_read *what, int fd, const struct stat *before,
                           char *bytes, xn_error *error) {
    struct stat after;
    size_t got = 0, length = (size_t)before->st_size;
    if (!xn_file_read_start(fd, bytes, length, what->stop, &got) || fstat(fd, &after))
        return xn_fail(error, XN_ERR_IO, "model", "%.130s: %s", what->file, strerror(errno));
    if (atomic_load(what->stop))
        return xn_fail(error, XN_ERR_DRAINING, "model", "the service is shutting down");
    if (got != length || mark_of("", before) != mark_of("", &after))
        return xn_fail(error, XN_ERR_IO, "model", "%.130s changed while it was read", what->file);
    return XN_OK;
}

xn_status xn_model_folder_read(const xn_model_folder *folder, const xn_model_read *what,
                               xn_model_bytes *out, xn_error *error) {
    struct stat info;
    int fd = -1;
    char *bytes = NULL;
    xn_status status = open_plain(folder, what->file, &fd, &info, error);
    if (status != XN_OK)
        return status;
    status = check_size(what, info.st_size, error);
    if (status == XN_OK && !(bytes = xn_mem_alloc((size_t)info.st_size)))
        status = xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for the %lld bytes of %.130s",
                         (long long)info.st_size, what->file);
    if (status == XN_OK)
        status = read_open(what, fd, &info, bytes, error);
    close(fd);
    if (status != XN_OK) {
        xn_mem_free(bytes);
        return status;
    }
    *out = (xn_model_bytes){bytes, (size_t)info.st_size};
    return XN_OK;
}

void xn_model_bytes_free(xn_model_bytes *bytes) {
    xn_mem_free(bytes->bytes);
    *bytes = (xn_model_bytes){0};
}

/* ---- the repository ---- */

/* Whether it may be a model's: a folder, or what only opening it can tell. */
static bool may_be_model(int fd, const struct dirent *entry) {
    struct stat info;
    if (entry->d_name[0] == '.')
        return false;
    if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW))
        return errno != ENOENT; /* it is there: a model that serves must not be taken for gone */
    return S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode);
}

xn_status xn_model_repository_each(const char *repository,
                                   bool (*each)(void *context, const char *name), void *context,
                                   xn_error *error) {
    const struct dirent *entry;
    DIR *names = opendir(repository);
    if (!names)
        return fail_repository(repository, error);
    while (errno = 0, (entry = readdir(names)))
        if (may_be_model(dirfd(names), entry) && !each(context, entry->d_name))
            break;
    xn_status status = !entry && errno ? fail_repository(repository, error) : XN_OK;
    closedir(names);
    return status;
}
