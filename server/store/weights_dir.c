/* weights_dir.c: the folder and its files, a record for each file, PUT, DELETE, and the thread that
 * looks at the folder. The design is in weights_dir.h. */
#include "weights_dir.h"

#include "arrays.h"
#include "clock.h"
#include "file.h"
#include "log.h"
#include "threads.h"
#include "weights_tensors.h"
#include "xn_mem.h"
#include "xn_weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#define TEMPORARY_START ".xnord-"
#define TEMPORARY_END ".tmp"
#define TEMPORARY_OLD_S 1800 /* no writer takes so long, nor are clocks of hosts so far apart */
#define OTHER_FILES_MAX 1000 /* records of files that are of no use */
#define VERIFY_NS (10 * XN_NS_PER_S) /* longer than the grain of any file system's times */
#define RETRY_POLLS 10               /* between two tries of a file that failed */
#define RETRY_NS (2 * XN_NS_PER_S)   /* between two looks while the folder cannot be read */

typedef struct folder {
    const char *path;
    int fd; /* -1: it is not open */
    xn_file_id id;
} folder;

/* The file NAME.safetensors as it was seen last. The name may be one that weights cannot have. */
typedef struct record {
    char name[NAME_MAX + 1];
    xn_file_id id;
    uint64_t checksum; /* while loaded */
    bool loaded;       /* the store has its contents */
    bool bad;          /* it cannot be used as it is; weights from before may still be loaded */
    int64_t until_ns;  /* loaded: until then an equal id proves nothing, as times have a grain;
                        * bad: until then it is not tried again */
} record;

struct xn_weights_dir {
    /* constant after opening */
    folder folder;
    xn_weights_dir_options options;
    xn_store *store;
    xn_metrics *metrics;
    pthread_t thread;
    atomic_bool stop; /* set under the mutex */

    /* the thread's own */
    bool all_loaded;
    bool unreadable, crowded; /* reported, and not over yet */

    pthread_mutex_t mutex; /* guards all below, and keeps a change on disk and the same change in
                            * the store together; the store's mutex may be taken inside it */
    pthread_cond_t wake;
    bool asked;
    xn_names records; /* of record */
};

/* ---- the folder ---- */

typedef struct file_name {
    char text[NAME_MAX + 1];
} file_name;

static file_name file_of(const char *name) {
    file_name file;
    snprintf(file.text, sizeof file.text, "%.*s" XN_WEIGHTS_SUFFIX,
             (int)(NAME_MAX - strlen(XN_WEIGHTS_SUFFIX)), name);
    return file;
}

static xn_status fail_folder(const char *path, const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "weights-dir", "--weights-dir %.200s: %s: %s", path, what,
                   strerror(errno));
}

/* -1: errno says why. */
static int make_temporary(const folder *in, char file[48]) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -1;
    snprintf(file, 48, TEMPORARY_START "%016llx" TEMPORARY_END, (unsigned long long)random);
    return openat(in->fd, file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
}

/* On failure too, out->fd is to be closed. */
static xn_status open_folder(const char *path, folder *out, xn_error *error) {
    struct stat info;
    char file[48];
    out->path = path;
    out->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->fd < 0 || fstat(out->fd, &info))
        return fail_folder(path, "it cannot be opened", error);
    out->id = xn_file_id_of(&info);
    const int fd = make_temporary(out, file);
    if (fd >= 0 && !close(fd) && !unlinkat(out->fd, file, 0))
        return XN_OK;
    if (errno != EROFS && errno != EACCES && errno != EPERM)
        return fail_folder(path, "a file cannot be made in it", error);
    xn_log(XN_LOG_WARN, NULL,
           "--weights-dir %.200s cannot be written (%s): the weights in it are served, PUT and "
           "DELETE are refused",
           path, strerror(errno));
    return XN_OK;
}

/* Whether the path still leads to the folder that is open. */
static xn_status check_folder(const folder *in, xn_error *error) {
    struct stat info;
    if (stat(in->path, &info))
        return xn_fail(error, XN_ERR_IO, "weights-dir", "the folder of --weights-dir is gone: %s",
                       strerror(errno));
    if (info.st_dev != in->id.device || info.st_ino != in->id.inode)
        return xn_fail(error, XN_ERR_IO, "weights-dir",
                       "the folder of --weights-dir is another folder than when the daemon was "
                       "started; restart it if that is meant");
    return XN_OK;
}

/* Makes renames and removals durable. what: what is done, for the message. */
static xn_status sync_folder(const folder *in, const char *what, xn_error *error) {
    /* EINVAL: a file system that does not know how to, and so has nothing to wait for. */
    if (!fsync(in->fd) || errno == EINVAL)
        return XN_OK;
    return xn_fail(error, XN_ERR_IO, "weights-dir",
                   "%s, but that may not outlast a loss of power: the folder of --weights-dir "
                   "cannot be synchronised: %s",
                   what, strerror(errno));
}

/* ---- its files ---- */

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

/* What the name's file is known by; of a link, the file that it leads to. */
static xn_status stat_file(const folder *in, const char *name, xn_file_id *id, xn_error *error) {
    const file_name file = file_of(name);
    struct stat info;
    if (!fstatat(in->fd, file.text, &info, 0)) {
        *id = xn_file_id_of(&info);
        return XN_OK;
    }
    if (errno != ENOENT || fstatat(in->fd, file.text, &info, AT_SYMLINK_NOFOLLOW))
        return fail_file("look at", file.text, error);
    return xn_fail(error, XN_ERR_IO, "weights-dir", "it is a link to what is not there");
}

/* *checksum: what its header states. */
static xn_status open_file(const folder *in, const char *file, int *fd, struct stat *info,
                           uint64_t *checksum, xn_error *error) {
    unsigned char start[XN_WEIGHTS_FILE_MARK_BYTES];
    const xn_file_opened opened = xn_file_open_plain(in->fd, in->fd, file, fd, info);
    if (opened == XN_FILE_OTHER)
        return xn_fail(error, XN_ERR_MALFORMED, "weights-dir", "it is %s, not a plain file",
                       xn_file_kind(info->st_mode));
    const ssize_t got = opened == XN_FILE_OPEN ? xn_file_fill(*fd, start, sizeof start, NULL) : -1;
    const xn_status status = got < 0 ? fail_file("read", file, error)
                                     : xn_weights_file_mark(start, (size_t)got, checksum, error);
    if (status && opened == XN_FILE_OPEN)
        close(*fd);
    return status;
}

static xn_status stated_checksum(const folder *in, const char *name, uint64_t *checksum) {
    struct stat info;
    xn_error ignored;
    int fd;
    const xn_status status = open_file(in, file_of(name).text, &fd, &info, checksum, &ignored);
    if (!status)
        close(fd);
    return status;
}

/* A hidden file, on disk, that becomes the file of a name. */
typedef struct temporary {
    char file[48];
    int fd;
    uint64_t checksum;
} temporary;

static void end_temporary(const folder *in, const temporary *t, bool renamed) {
    close(t->fd);
    if (!renamed)
        unlinkat(in->fd, t->file, 0);
}

/* On failure there is no file. */
static xn_status write_temporary(const folder *in, const xn_tensor *const tensors[3],
                                 temporary *out, xn_error *error) {
    xn_weights_file_head head;
    xn_weights_file_begin(tensors[0], tensors[1], tensors[2], &head);
    out->checksum = head.checksum;
    out->fd = make_temporary(in, out->file);
    bool written = out->fd >= 0 && xn_file_write(out->fd, head.bytes, head.length);
    for (int i = 0; written && i < 3; i++)
        written = !tensors[i] || xn_file_write(out->fd, tensors[i]->data, tensors[i]->bytes);
    if (written && !fsync(out->fd))
        return XN_OK;
    const xn_status status = fail_file("write", "the weights' file", error);
    if (out->fd >= 0)
        end_temporary(in, out, false);
    return status;
}

/* Whether `file` is a temporary one; it is removed if it is so old that its writer is gone. */
static bool expire_temporary(const folder *in, const char *file) {
    struct stat info;
    if (fnmatch(TEMPORARY_START "*" TEMPORARY_END, file, FNM_PERIOD))
        return false;
    if (!fstatat(in->fd, file, &info, 0) &&
        xn_wall_ns() / XN_NS_PER_S - info.st_mtim.tv_sec > TEMPORARY_OLD_S &&
        !unlinkat(in->fd, file, 0))
        xn_log(XN_LOG_INFO, NULL, "weights-dir: %s removed: a writer that is gone left it", file);
    return true;
}

/* ---- records ---- */

/* Made if there is none; NULL without memory. */
static record *make_locked(xn_weights_dir *dir, const char *name) {
    record *r = xn_names_get(&dir->records, name);
    if (r || !xn_names_reserve(&dir->records) || !(r = xn_mem_zalloc(1, sizeof *r)))
        return r;
    snprintf(r->name, sizeof r->name, "%s", name);
    xn_names_insert(&dir->records, r);
    return r;
}

static void set_bad_locked(xn_weights_dir *dir, record *r, bool bad) {
    xn_metrics_gauge_add(dir->metrics, XN_GAUGE_WEIGHTS_DIR_SKIPPED, bad - r->bad);
    r->bad = bad;
}

static void drop_locked(xn_weights_dir *dir, record *r) {
    set_bad_locked(dir, r, false);
    xn_names_remove(&dir->records, r);
    xn_mem_free(r);
}

/* The store has what the file of that id holds. */
static void set_loaded_locked(xn_weights_dir *dir, record *r, const xn_file_id *id,
                              uint64_t checksum) {
    set_bad_locked(dir, r, false);
    r->loaded = true;
    r->id = *id;
    r->checksum = checksum;
    r->until_ns = xn_now_ns() + VERIFY_NS;
}

/* ---- put and delete ---- */

static xn_status count_failure(xn_weights_dir *dir, xn_status status) {
    if (status == XN_ERR_IO)
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
    return status;
}

/* Some file systems take names that differ in upper and lower case only for one name. */
static xn_status check_case_locked(const xn_weights_dir *dir, const char *name, xn_error *error) {
    xn_file_id mine, other;
    if (stat_file(&dir->folder, name, &mine, error))
        return XN_OK; /* there is none: it cannot be another's */
    for (size_t i = 0; i < dir->records.count; i++) {
        const char *known = ((const record *)dir->records.items[i])->name;
        if (!strcasecmp(known, name) && strcmp(known, name) != 0 &&
            !stat_file(&dir->folder, known, &other, error) && xn_file_id_equal(&mine, &other))
            return xn_fail(error, XN_ERR_UNSUPPORTED, "name",
                           "there is %.128s, whose file is the same: the file system of "
                           "--weights-dir takes upper and lower case for the same; choose another "
                           "name",
                           known);
    }
    return XN_OK;
}

/* All that can fail comes before the rename, so that file and store change together. */
static xn_status replace_locked(xn_weights_dir *dir, const char *name, const temporary *written,
                                xn_asset **asset, bool *created, xn_store_item *item,
                                xn_error *error) {
    const file_name file = file_of(name);
    struct stat info;
    record *r = NULL;
    xn_status status = xn_store_check_room(dir->store, name, xn_asset_held_bytes(*asset), error);
    if (!status)
        status = check_case_locked(dir, name, error);
    if (!status)
        status = check_folder(&dir->folder, error);
    if (!status && !(r = make_locked(dir, name)))
        status = xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another name");
    if (status)
        return status;
    if (renameat(dir->folder.fd, written->file, dir->folder.fd, file.text)) {
        status = fail_file("put in place", file.text, error);
        if (!r->loaded && !r->bad)
            drop_locked(dir, r); /* the next look finds what there is */
        return status;
    }
    xn_file_id id = {0}; /* no file's: the next look reads it again */
    if (!fstat(written->fd, &info))
        id = xn_file_id_of(&info);
    status = xn_store_publish(dir->store, asset, created, item, error);
    if (!status) /* as there was room; else the next look loads it */
        set_loaded_locked(dir, r, &id, written->checksum);
    return status;
}

xn_status xn_weights_dir_put(xn_weights_dir *dir, const char *name, const xn_tensor *weights,
                             const xn_tensor *scale, const xn_tensor *bias, bool *created,
                             xn_store_item *item, xn_error *error) {
    const xn_tensor *const tensors[3] = {weights, scale, bias};
    temporary written;
    xn_asset *asset = NULL;
    xn_status status = xn_store_make(dir->store, name, weights, scale, bias, &asset, error);
    if (!status && !(status = write_temporary(&dir->folder, tensors, &written, error))) {
        pthread_mutex_lock(&dir->mutex);
        status = replace_locked(dir, name, &written, &asset, created, item, error);
        pthread_mutex_unlock(&dir->mutex);
        end_temporary(&dir->folder, &written, !status);
    }
    xn_asset_release(asset); /* with no lock held: it may be freed on devices */
    if (!status)
        status = sync_folder(&dir->folder, "the weights are registered", error);
    return count_failure(dir, status);
}

static xn_status delete_locked(xn_weights_dir *dir, const char *name, xn_asset **gone,
                               xn_error *error) {
    const file_name file = file_of(name);
    record *r = xn_names_get(&dir->records, name);
    bool removed = false;
    uint64_t checksum;
    xn_status status = check_folder(&dir->folder, error);
    if (status)
        return status;
    /* A file that is not one of weights, from here or from another daemon, is left alone. */
    if ((r && r->loaded) || !stated_checksum(&dir->folder, name, &checksum)) {
        removed = !unlinkat(dir->folder.fd, file.text, 0);
        if (!removed && errno != ENOENT)
            return fail_file("remove", file.text, error);
        if (r)
            drop_locked(dir, r);
    }
    status = xn_store_remove(dir->store, name, gone, error);
    return removed ? XN_OK : status;
}

xn_status xn_weights_dir_delete(xn_weights_dir *dir, const char *name, xn_error *error) {
    xn_asset *gone = NULL;
    pthread_mutex_lock(&dir->mutex);
    xn_status status = delete_locked(dir, name, &gone, error);
    pthread_mutex_unlock(&dir->mutex);
    xn_asset_release(gone);
    if (!status)
        status = sync_folder(&dir->folder, "the weights are deleted", error);
    return count_failure(dir, status);
}

/* ---- a look at one file ---- */

/* Why it failed may be gone although the file stays as it is. */
static bool may_pass(xn_status status) {
    return status == XN_ERR_LIMIT || status == XN_ERR_NO_MEMORY || status == XN_ERR_DEVICE_MEMORY ||
           status == XN_ERR_DEVICE_LOST || status == XN_ERR_IO;
}

/* The file, as it is now, is of no use. Said once, not again at each further try. */
static void refuse_locked(xn_weights_dir *dir, record *r, const xn_file_id *id,
                          const xn_error *why) {
    const int64_t pause_ns = RETRY_POLLS * dir->options.poll_ms * XN_NS_PER_MS;
    const bool again = r->bad && xn_file_id_equal(&r->id, id);
    r->id = *id;
    r->until_ns = may_pass(why->status) ? xn_now_ns() + pause_ns : INT64_MAX;
    set_bad_locked(dir, r, true);
    if (again)
        return;
    xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
    xn_log(XN_LOG_WARN, NULL, "weights-dir: %s" XN_WEIGHTS_SUFFIX " skipped: %s%s", r->name,
           why->message, r->loaded ? "; the weights from before stay" : "");
}

/* A file in memory, its tensors ready for xn_store_make. */
typedef struct file_contents {
    xn_file_id id;
    uint64_t checksum;
    xn_weights_tensors tensors;
    void *bytes;
} file_contents;

/* Publishes what was read if the file is still the one that was read: a PUT may have come in
 * between, whose weights must stay. */
static void publish_locked(xn_weights_dir *dir, record *r, const file_contents *read,
                           xn_asset **asset) {
    xn_file_id now;
    xn_error error;
    bool created;
    if (stat_file(&dir->folder, r->name, &now, &error) || !xn_file_id_equal(&now, &read->id))
        return; /* the next look reads it */
    if (!r->loaded || r->checksum != read->checksum) {
        if (xn_store_publish(dir->store, asset, &created, NULL, &error)) {
            refuse_locked(dir, r, &now, &error);
            return;
        }
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_LOADS, 1);
        xn_log(dir->all_loaded ? XN_LOG_INFO : XN_LOG_DEBUG, NULL, "weights \"%s\" %s", r->name,
               created ? "loaded from their file" : "replaced: their file changed");
    }
    set_loaded_locked(dir, r, &now, read->checksum);
}

static xn_status read_file(const xn_weights_dir *dir, const char *name, file_contents *out,
                           xn_error *error) {
    const xn_proto_limits limits = {dir->options.max_elements};
    const file_name file = file_of(name);
    struct stat info;
    xn_weights_request r;
    int fd = -1;
    xn_status status = open_file(&dir->folder, file.text, &fd, &info, &out->checksum, error);
    if (status)
        return status;
    const size_t size = (size_t)info.st_size;
    out->id = xn_file_id_of(&info);
    out->bytes = xn_mem_alloc(size);
    const xn_file_read_result result =
        out->bytes ? xn_file_read_whole(fd, &info, out->bytes, &dir->stop) : XN_FILE_WHOLE;
    if (!out->bytes)
        status =
            xn_fail(error, XN_ERR_NO_MEMORY, "weights-dir", "no memory for its %zu bytes", size);
    else if (result == XN_FILE_CHANGED)
        status = xn_fail(error, XN_ERR_IO, "weights-dir", "it changed while it was read");
    else if (result == XN_FILE_UNREADABLE)
        status = fail_file("read", file.text, error);
    close(fd);
    if (!status)
        status = xn_weights_file_parse(out->bytes, size, &limits, &r, error);
    if (!status)
        status = xn_weights_tensors_read(&r.weights, &r.scale, &r.bias, &out->tensors, error);
    return status;
}

static xn_status make(const xn_weights_dir *dir, const char *name, off_t size, file_contents *read,
                      xn_asset **asset, xn_error *error) {
    const off_t header = XN_PROTO_MAX_HEADER_BYTES + 8; /* at most; a value takes at least a byte */
    const size_t least = size > header ? (size_t)(size - header) : 1;
    if (!xn_proto_name_valid(name))
        return xn_fail(error, XN_ERR_MALFORMED, "weights-dir",
                       "its name is not that of weights (1 to %d of A-Z a-z 0-9 . _ -)",
                       XN_PROTO_MAX_NAME);
    xn_status status = xn_store_check_room(dir->store, name, least, error);
    if (!status)
        status = read_file(dir, name, read, error);
    return status ? status
                  : xn_store_make(dir->store, name, read->tensors.weights, read->tensors.scale,
                                  read->tensors.bias, asset, error);
}

static void load(xn_weights_dir *dir, const char *name, const xn_file_id *id) {
    file_contents read = {0};
    xn_asset *asset = NULL;
    xn_error error;
    const xn_status status = make(dir, name, id->size, &read, &asset, &error);
    pthread_mutex_lock(&dir->mutex);
    record *r = xn_names_get(&dir->records, name);
    const bool goes_on = r && !atomic_load(&dir->stop); /* no record: it was deleted meanwhile */
    if (goes_on && !status)
        publish_locked(dir, r, &read, &asset);
    else if (goes_on && status != XN_ERR_NOT_FOUND)
        refuse_locked(dir, r, id, &error);
    pthread_mutex_unlock(&dir->mutex);
    xn_asset_release(asset);
    xn_weights_tensors_free(&read.tensors);
    xn_mem_free(read.bytes);
}

/* Whether the file of that id is the one that is known. */
static bool is_current_locked(const xn_weights_dir *dir, const record *r, const xn_file_id *id) {
    uint64_t stated;
    if (!xn_file_id_equal(&r->id, id))
        return false;
    if (r->bad)
        return xn_now_ns() < r->until_ns;
    return r->loaded &&
           (xn_now_ns() >= r->until_ns ||
            (!stated_checksum(&dir->folder, r->name, &stated) && stated == r->checksum));
}

/* Whether the file of the name has to be loaded. *gone: weights whose file is gone, to release. */
static bool look_at_locked(xn_weights_dir *dir, const char *name, xn_file_id *id, xn_asset **gone) {
    xn_error error;
    record *r = xn_names_get(&dir->records, name);
    const xn_status status = stat_file(&dir->folder, name, id, &error);
    if (!r)
        return false; /* deleted since the folder was listed */
    if (status == XN_ERR_NOT_FOUND) {
        if (r->loaded && !xn_store_remove(dir->store, name, gone, NULL))
            xn_log(XN_LOG_INFO, NULL, "weights \"%s\" deleted: their file is gone", name);
        drop_locked(dir, r);
        return false;
    }
    if (is_current_locked(dir, r, id))
        return false;
    if (status)
        refuse_locked(dir, r, id, &error);
    return !status;
}

/* ---- a look at the folder ---- */

/* A record of the file's name, if it is one of weights. False without memory. */
static bool note_file(xn_weights_dir *dir, char *file, bool *crowded) {
    if (fnmatch("?*" XN_WEIGHTS_SUFFIX, file, 0))
        return true;
    file[strlen(file) - strlen(XN_WEIGHTS_SUFFIX)] = '\0';
    pthread_mutex_lock(&dir->mutex);
    const bool full = dir->records.count >= (size_t)dir->options.max_weights + OTHER_FILES_MAX &&
                      !xn_names_get(&dir->records, file);
    const bool noted = full || make_locked(dir, file);
    pthread_mutex_unlock(&dir->mutex);
    *crowded |= full;
    return noted;
}

/* A record for each new name. */
static xn_status note_files(xn_weights_dir *dir, xn_error *error) {
    struct dirent *item;
    bool crowded = false, noted = true;
    DIR *names = xn_file_names(dir->folder.fd);
    while (names && (errno = 0, noted && (item = readdir(names))))
        if (!expire_temporary(&dir->folder, item->d_name))
            noted = note_file(dir, item->d_name, &crowded);
    const int cause = noted ? errno : ENOMEM;
    if (names)
        closedir(names);
    if (crowded && !dir->crowded)
        xn_log(XN_LOG_WARN, NULL, "weights-dir: too many files; only %zu are looked at",
               dir->records.count);
    dir->crowded = crowded;
    return cause ? xn_fail(error, XN_ERR_IO, "weights-dir", "the folder cannot be listed: %s",
                           strerror(cause))
                 : XN_OK;
}

/* Looks at the first file whose name is behind the one given, which becomes it. False: that was the
 * last. The mutex is held so that no put or delete is half done. */
static bool look_at_next(xn_weights_dir *dir, char name[NAME_MAX + 1]) {
    xn_file_id id = {0};
    size_t at;
    bool wanted = false;
    xn_asset *gone = NULL;
    pthread_mutex_lock(&dir->mutex);
    at = xn_names_find(&dir->records, name, &at) ? at + 1 : at;
    const bool found = at < dir->records.count;
    if (found) {
        memcpy(name, dir->records.items[at], NAME_MAX + 1);
        wanted = look_at_locked(dir, name, &id, &gone);
    }
    pthread_mutex_unlock(&dir->mutex);
    xn_asset_release(gone);
    if (wanted)
        load(dir, name, &id);
    return found;
}

static void look_at_all(xn_weights_dir *dir) {
    char name[NAME_MAX + 1] = "";
    xn_error error;
    xn_status status = check_folder(&dir->folder, &error);
    if (!status)
        status = note_files(dir, &error);
    if (status && !dir->unreadable) {
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
        xn_log(XN_LOG_ERROR, NULL, "weights-dir: %s; changes there are not seen", error.message);
    } else if (!status && dir->unreadable) {
        xn_log(XN_LOG_INFO, NULL, "weights-dir: the folder can be read again");
    }
    dir->unreadable = status != XN_OK;
    while (!status && !atomic_load(&dir->stop) && look_at_next(dir, name))
        ;
    if (status || dir->all_loaded || atomic_load(&dir->stop))
        return;
    dir->all_loaded = true;
    xn_log(XN_LOG_INFO, NULL, "weights-dir %s: %lld weights, %lld files skipped", dir->folder.path,
           (long long)xn_metrics_gauge(dir->metrics, XN_GAUGE_WEIGHTS),
           (long long)xn_metrics_gauge(dir->metrics, XN_GAUGE_WEIGHTS_DIR_SKIPPED));
    if (dir->options.loaded)
        dir->options.loaded(dir->options.context);
}

static void *follow(void *context) {
    xn_weights_dir *dir = context;
    while (!atomic_load(&dir->stop)) {
        look_at_all(dir);
        int64_t pause_ns = dir->options.poll_ms * XN_NS_PER_MS;
        if (!dir->all_loaded && (!pause_ns || pause_ns > RETRY_NS))
            pause_ns = RETRY_NS;
        const int64_t until_ns = pause_ns ? xn_now_ns() + pause_ns : INT64_MAX;
        pthread_mutex_lock(&dir->mutex);
        while (!dir->asked && !atomic_load(&dir->stop) &&
               xn_cond_wait_until(&dir->wake, &dir->mutex, until_ns))
            ;
        dir->asked = false;
        pthread_mutex_unlock(&dir->mutex);
    }
    return NULL;
}

void xn_weights_dir_look(xn_weights_dir *dir) {
    pthread_mutex_lock(&dir->mutex);
    dir->asked = true;
    pthread_cond_signal(&dir->wake);
    pthread_mutex_unlock(&dir->mutex);
}

/* ---- opening and closing ---- */

static void destroy(xn_weights_dir *dir) {
    if (dir->folder.fd >= 0)
        close(dir->folder.fd);
    for (size_t i = 0; i < dir->records.count; i++)
        xn_mem_free(dir->records.items[i]);
    xn_names_free(&dir->records);
    pthread_cond_destroy(&dir->wake);
    pthread_mutex_destroy(&dir->mutex);
    xn_mem_free(dir);
}

xn_status xn_weights_dir_open(const xn_weights_dir_options *options, xn_store *store,
                              xn_metrics *metrics, xn_weights_dir **out, xn_error *error) {
    xn_weights_dir *dir = xn_mem_zalloc(1, sizeof *dir);
    if (!dir)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for --weights-dir");
    pthread_mutex_init(&dir->mutex, NULL);
    xn_cond_init(&dir->wake);
    atomic_init(&dir->stop, false);
    dir->store = store;
    dir->metrics = metrics;
    dir->options = *options;
    xn_status status = open_folder(options->path, &dir->folder, error);
    if (!status)
        status = xn_thread_start(&dir->thread, "xn-weights-dir", follow, dir, error);
    if (status)
        destroy(dir);
    else
        *out = dir;
    return status;
}

xn_status xn_weights_dir_check(const char *path, xn_error *error) {
    folder in;
    const xn_status status = open_folder(path, &in, error);
    if (in.fd >= 0)
        close(in.fd);
    return status;
}

void xn_weights_dir_close(xn_weights_dir *dir) {
    if (!dir)
        return;
    pthread_mutex_lock(&dir->mutex);
    atomic_store(&dir->stop, true);
    pthread_cond_signal(&dir->wake);
    pthread_mutex_unlock(&dir->mutex);
    pthread_join(dir->thread, NULL);
    destroy(dir);
}
