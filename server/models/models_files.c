/* models_files.c: folders of models and the files in them. Paths come from the configuration and
 * may be links, as volumes are. A name within the repository, or in the folder of a --model, is
 * opened relative to the folder it is in, and may be a link to something that lies within the same
 * repository or folder, as ConfigMaps and container images make them. A link's target is checked
 * after it was opened (file.h), so no change of links leads out. */
#include "models_internal.h"

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders ---- */

enum { FOLDER = O_RDONLY | O_DIRECTORY }; /* flags of open */

/* Why a link, or its target, was not opened. */
static const char *explain_link(int cause) {
    return cause == EXDEV   ? "is a link that leads out of the model's folder or repository, "
                              "and is not followed; put a copy in its place"
           : cause == ELOOP ? "is a link that leads to itself"
                            : "is a link to what is not there";
}

static bool is_link(int at, const char *name) {
    struct stat info;
    return !fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) && S_ISLNK(info.st_mode);
}

static xn_status fail_folder(int at, const char *name, int cause, xn_error *error) {
    if ((cause == ENOENT || cause == ELOOP || cause == EXDEV) && is_link(at, name))
        return xn_fail(error, XN_ERR_MALFORMED, "model", "%.200s %s", name, explain_link(cause));
    if (cause == ENOENT)
        return xn_fail(error, XN_ERR_NOT_FOUND, "model", "there is no folder %.200s", name);
    if (cause == ENOTDIR)
        return xn_fail(error, XN_ERR_MALFORMED, "model", "%.200s is no folder", name);
    return xn_fail(error, XN_ERR_IO, "model", "%.200s: %s", name, strerror(cause));
}

static xn_status fail_repository(const char *repository, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "model-repository", "--model-repository %.200s: %s",
                   repository, strerror(errno));
}

/* Opens the root, and the model's folder, which is the root itself where there is no repository. */
static xn_status open_location(const xn_model_location *location, xn_model_folder *out,
                               xn_error *error) {
    const char *root = location->repository ? location->repository : location->folder;
    out->root = open(root, FOLDER | O_CLOEXEC);
    if (out->root < 0 && location->repository)
        return fail_repository(root, error);
    if (out->root < 0)
        return fail_folder(AT_FDCWD, root, errno, error);
    out->fd = location->repository
                  ? xn_file_open_within(out->root, out->root, location->folder, FOLDER)
                  : openat(out->root, ".", FOLDER | O_CLOEXEC);
    return out->fd < 0 ? fail_folder(out->root, location->folder, errno, error) : XN_OK;
}

bool xn_model_version_higher(const char *version, const char *than) {
    size_t a = strlen(version), b = strlen(than);
    return a != b ? a > b : strcmp(version, than) > 0;
}

bool xn_model_versions_have(const xn_model_versions *versions, const char *version) {
    for (int i = 0; i < versions->count; i++)
        if (!strcmp(versions->names[i], version))
            return true;
    return false;
}

static bool is_served(const xn_version_policy *policy, const char *version) {
    for (int i = 0; i < policy->count; i++)
        if (!strcmp(policy->listed[i], version))
            return true;
    return policy->latest > 0;
}

/* Keeps the highest, in order. False: one had to go, or was not taken. */
static bool add_version(xn_model_versions *versions, int most, const char *version) {
    const size_t size = sizeof versions->names[0];
    const bool full = versions->count == most;
    int at = 0;
    while (at < versions->count && xn_model_version_higher(version, versions->names[at]))
        at++;
    if (full && !at)
        return false;
    if (full) {
        at--;
        memmove(versions->names[0], versions->names[1], (size_t)at * size);
    } else {
        memmove(versions->names[at + 1], versions->names[at],
                (size_t)(versions->count++ - at) * size);
    }
    snprintf(versions->names[at], size, "%.*s", XN_VERSION_DIGITS_MAX, version);
    return !full;
}

static xn_status fail_versions(const xn_version_policy *policy, bool numbered, xn_error *error) {
    if (!numbered)
        return xn_fail(error, XN_ERR_MALFORMED, "model",
                       "there is no config.json in its folder, nor a folder whose name is a "
                       "number, with one in it");
    if (!policy->all)
        return xn_fail(error, XN_ERR_MALFORMED, "model",
                       "its folder has none of the versions that --version-policy names");
    return xn_fail_limit(error, "version-policy", "model",
                         "its folder has more than %d versions; --version-policy all serves no "
                         "more, give latest:N or specific:N,N",
                         XN_VERSIONS_MAX);
}

/* Of the model's folder. */
static xn_status find_versions(int fd, const xn_version_policy *policy, xn_model_versions *out,
                               xn_error *error) {
    struct stat info;
    bool numbered = false, fit = true;
    const int most = policy->latest ? policy->latest : XN_VERSIONS_MAX;
    *out = (xn_model_versions){.count = 1, .names = {XN_MODEL_FIRST_VERSION}};
    if (!fstatat(fd, XN_MODEL_CONFIG_FILE, &info, AT_SYMLINK_NOFOLLOW))
        return XN_OK;
    DIR *names = xn_file_names(fd);
    if (!names)
        return xn_fail(error, XN_ERR_IO, "model", "the folder cannot be read: %s", strerror(errno));
    out->count = 0;
    for (const struct dirent *entry; (entry = readdir(names));) {
        if (!xn_version_valid(entry->d_name, strlen(entry->d_name)))
            continue;
        numbered = true;
        if (is_served(policy, entry->d_name))
            fit = add_version(out, most, entry->d_name) && fit;
    }
    closedir(names);
    return out->count && (fit || !policy->all) ? XN_OK : fail_versions(policy, numbered, error);
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

static uint64_t fingerprint_of(const char *name, const struct stat *info) {
    const xn_file_id id = xn_file_id_of(info);
    const uint64_t h = mix(mix_text(1, name), (uint64_t)id.device);
    return mix(mix(mix(h, (uint64_t)id.inode), (uint64_t)id.size), (uint64_t)id.changed_ns);
}

/* Fingerprint of all files, and targets of links. Ignores hidden files, which editors and copying
 * tools make. A sum, since readdir has no fixed order. Never 0. */
static xn_status fingerprint(xn_model_folder *folder, xn_error *error) {
    struct stat info;
    DIR *names = xn_file_names(folder->fd);
    if (!names)
        return xn_fail(error, XN_ERR_IO, "model", "the folder cannot be read: %s", strerror(errno));
    uint64_t sum = mix_text(1, folder->version);
    for (const struct dirent *entry; (entry = readdir(names));)
        if (entry->d_name[0] != '.' && !fstatat(folder->fd, entry->d_name, &info, 0) &&
            !S_ISDIR(info.st_mode))
            sum += fingerprint_of(entry->d_name, &info);
    closedir(names);
    folder->fingerprint = sum ? sum : 1;
    return XN_OK;
}

/* Replaces the model's folder by that of the version, which may be the same. */
static xn_status enter_version(xn_model_folder *out, const char *version, xn_error *error) {
    const int fd = out->fd;
    struct stat info;
    snprintf(out->version, sizeof out->version, "%s", version);
    if (!fstatat(fd, XN_MODEL_CONFIG_FILE, &info, AT_SYMLINK_NOFOLLOW))
        return !strcmp(version, XN_MODEL_FIRST_VERSION)
                   ? XN_OK
                   : xn_fail(error, XN_ERR_NOT_FOUND, "model", "there is no version %s", version);
    xn_status status = XN_OK;
    out->fd = xn_file_open_within(out->root, fd, version, FOLDER);
    if (out->fd < 0)
        status = fail_folder(fd, version, errno, error);
    close(fd);
    return status;
}

xn_status xn_model_folder_open(const xn_model_location *location, const char *version,
                               xn_model_folder *out, xn_error *error) {
    static const xn_version_policy highest = {.latest = 1};
    xn_model_versions found;
    *out = (xn_model_folder){.fd = -1, .root = -1};
    xn_status status = open_location(location, out, error);
    if (status == XN_OK && !version) {
        status = find_versions(out->fd, &highest, &found, error);
        version = found.names[0];
    }
    if (status == XN_OK)
        status = enter_version(out, version, error);
    if (status == XN_OK)
        status = fingerprint(out, error);
    if (status != XN_OK)
        xn_model_folder_close(out);
    return status;
}

xn_status xn_model_folder_versions(const xn_model_location *location,
                                   const xn_version_policy *policy, xn_model_versions *out,
                                   xn_error *error) {
    xn_model_folder folder = {.fd = -1, .root = -1};
    xn_status status = open_location(location, &folder, error);
    if (status == XN_OK)
        status = find_versions(folder.fd, policy, out, error);
    xn_model_folder_close(&folder);
    return status;
}

void xn_model_folder_close(xn_model_folder *folder) {
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->root >= 0)
        close(folder->root);
    folder->fd = folder->root = -1;
}

int64_t xn_model_folder_bytes(const xn_model_folder *folder) {
    struct stat info;
    if (folder->fd < 0 || fstatat(folder->fd, XN_MODEL_TENSORS_FILE, &info, 0))
        return 0;
    return info.st_size;
}

/* ---- a file ---- */

static xn_status open_plain(const xn_model_folder *folder, const char *file, int *out,
                            struct stat *info, xn_error *error) {
    switch (xn_file_open_plain(folder->root, folder->fd, file, out, info)) {
    case XN_FILE_OPEN:
        return XN_OK;
    case XN_FILE_OTHER:
        return xn_fail(error, XN_ERR_MALFORMED, "model", "%.130s is %s, not a plain file", file,
                       xn_file_kind(info->st_mode));
    default:
        break;
    }
    const int cause = errno;
    if ((cause == ENOENT || cause == ELOOP || cause == EXDEV) && is_link(folder->fd, file))
        return xn_fail(error, XN_ERR_MALFORMED, "model", "%.130s %s", file, explain_link(cause));
    if (cause == ENOENT)
        return xn_fail(error, XN_ERR_MALFORMED, "model", "there is no %.130s in its folder", file);
    return xn_fail(error, XN_ERR_IO, "model", "%.130s: %s", file, strerror(cause));
}

xn_status xn_model_check_size(const xn_model_read *what, size_t bytes, xn_error *error) {
    if ((uint64_t)bytes <= (uint64_t)what->most)
        return XN_OK;
    if (what->limit)
        return xn_fail_limit(error, what->limit, "model", "%.130s has %zu bytes; --%s is %lld",
                             what->file, bytes, what->limit, (long long)what->most);
    return xn_fail(error, XN_ERR_MALFORMED, "model", "%.130s has %zu bytes; it may have %lld",
                   what->file, bytes, (long long)what->most);
}

static xn_status read_open(const xn_model_read *what, int fd, const struct stat *before,
                           char *bytes, xn_error *error) {
    const xn_file_read_result result = xn_file_read_whole(fd, before, bytes, what->stop);
    if (result == XN_FILE_UNREADABLE)
        return xn_fail(error, XN_ERR_IO, "model", "%.130s: %s", what->file, strerror(errno));
    if (atomic_load(what->stop))
        return xn_fail(error, XN_ERR_DRAINING, "model", "the service is shutting down");
    if (result == XN_FILE_CHANGED)
        return xn_fail(error, XN_ERR_LOADING, "model",
                       "%.130s changed while it was read; load the model again once it is written",
                       what->file);
    return XN_OK;
}

void xn_model_free_copy(void *bytes, size_t length) {
    (void)length;
    xn_mem_free(bytes);
}

static xn_status copy_open(const xn_model_read *what, int fd, const struct stat *info,
                           xn_model_bytes *out, xn_error *error) {
    const size_t length = (size_t)info->st_size;
    void *bytes = xn_mem_alloc(length);
    if (!bytes)
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for the %zu bytes of %.130s",
                       length, what->file);
    *out = (xn_model_bytes){bytes, length, xn_model_free_copy};
    xn_status status = read_open(what, fd, info, bytes, error);
    if (status != XN_OK)
        xn_model_bytes_free(out);
    return status;
}

xn_status xn_model_folder_read(const xn_model_folder *folder, const xn_model_read *what,
                               xn_model_bytes *out, xn_error *error) {
    struct stat info;
    int fd = -1;
    xn_status status = open_plain(folder, what->file, &fd, &info, error);
    if (status != XN_OK)
        return status;
    const bool maps = what->map && info.st_size >= XN_MAPPING_LEAST_BYTES;
    status = xn_model_check_size(what, (size_t)info.st_size, error);
    if (status == XN_OK && !(maps && xn_mapping_create(fd, &info, out)))
        status = copy_open(what, fd, &info, out, error);
    close(fd);
    return status;
}

void xn_model_bytes_free(xn_model_bytes *bytes) {
    if (bytes->bytes)
        bytes->release(bytes->bytes, bytes->length);
    *bytes = (xn_model_bytes){0};
}

/* ---- the repository ---- */

/* Whether the entry may be a model's folder. Also if that cannot be told: a model that serves must
 * not be unloaded by mistake. */
static bool may_be_model(int fd, const struct dirent *entry) {
    struct stat info;
    if (entry->d_name[0] == '.')
        return false;
    if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW))
        return errno != ENOENT;
    if (S_ISLNK(info.st_mode) && fstatat(fd, entry->d_name, &info, 0))
        return true;
    return S_ISDIR(info.st_mode);
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
