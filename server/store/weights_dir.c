/* weights_dir.c: a record for each file, PUT, DELETE, and the thread that looks at the folder. The
 * design is in weights_dir.h. */
#include "weights_dir.h"

#include "arrays.h"
#include "clock.h"
#include "log.h"
#include "threads.h"
#include "weights_dir_file.h"
#include "xn_mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define OTHER_FILES_MAX 1000         /* records of files that are of no use */
#define VERIFY_NS (10 * XN_NS_PER_S) /* longer than the grain of any file system's times */
#define RETRY_POLLS 10               /* between two tries of a file that failed */
#define RETRY_NS (2 * XN_NS_PER_S)   /* between two looks while the folder cannot be read */

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
    xn_folder folder;
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

/* ---- records ---- */

/* The record of the name, made if there is none; NULL without memory. */
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

static xn_status finish(xn_weights_dir *dir, xn_status status, const xn_error *why,
                        xn_error *error) {
    if (status == XN_ERR_IO)
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
    if (status && error)
        *error = *why;
    return status;
}

/* Some file systems take names that differ in upper and lower case only for one name. */
static xn_status check_case_locked(const xn_weights_dir *dir, const char *name, xn_error *error) {
    xn_file_id mine, other;
    if (xn_folder_stat(&dir->folder, name, &mine, error))
        return XN_OK; /* there is none: it cannot be another's */
    for (size_t i = 0; i < dir->records.count; i++) {
        const char *known = ((const record *)dir->records.items[i])->name;
        if (!strcasecmp(known, name) && strcmp(known, name) != 0 &&
            !xn_folder_stat(&dir->folder, known, &other, error) && xn_file_id_equal(&mine, &other))
            return xn_fail(error, XN_ERR_UNSUPPORTED, "name",
                           "there is %.128s, whose file is the same: the file system of "
                           "--weights-dir takes upper and lower case for the same; choose another "
                           "name",
                           known);
    }
    return XN_OK;
}

/* All that can fail comes before the rename, so that file and store change together. */
static xn_status replace_locked(xn_weights_dir *dir, const char *name,
                                const xn_temporary *temporary, xn_asset **asset, bool *created,
                                xn_store_item *item, xn_error *error) {
    xn_file_id id = {0};
    record *r = NULL;
    xn_status status = xn_store_check_room(dir->store, name, xn_asset_held_bytes(*asset), error);
    if (!status)
        status = check_case_locked(dir, name, error);
    if (!status)
        status = xn_folder_check(&dir->folder, error);
    if (!status && !(r = make_locked(dir, name)))
        status = xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another name");
    if (status)
        return status;
    status = xn_temporary_rename(&dir->folder, temporary, name, &id, error);
    if (status && !r->loaded && !r->bad)
        drop_locked(dir, r); /* the next look finds what there is */
    if (status)
        return status;
    status = xn_store_publish(dir->store, asset, created, item, error);
    if (!status) /* as there was room; else the next look loads it */
        set_loaded_locked(dir, r, &id, temporary->checksum);
    return status;
}

xn_status xn_weights_dir_put(xn_weights_dir *dir, const char *name, const xn_tensor *weights,
                             const xn_tensor *scale, const xn_tensor *bias, bool *created,
                             xn_store_item *item, xn_error *error) {
    const xn_tensor *const tensors[3] = {weights, scale, bias};
    xn_temporary temporary;
    xn_asset *asset = NULL;
    xn_error why;
    xn_status status = xn_store_make(dir->store, name, weights, scale, bias, &asset, &why);
    if (!status && !(status = xn_temporary_write(&dir->folder, tensors, &temporary, &why))) {
        pthread_mutex_lock(&dir->mutex);
        status = replace_locked(dir, name, &temporary, &asset, created, item, &why);
        pthread_mutex_unlock(&dir->mutex);
        xn_temporary_end(&dir->folder, &temporary, !status);
    }
    xn_asset_release(asset); /* with no lock held: it may be freed on devices */
    if (!status)
        status = xn_folder_sync(&dir->folder, "the weights are registered", &why);
    return finish(dir, status, &why, error);
}

/* Whether there is a file of weights, here or from another daemon, and not a file of another kind.
 */
static bool has_weights_locked(const xn_weights_dir *dir, const char *name) {
    const record *r = xn_names_get(&dir->records, name);
    uint64_t checksum;
    xn_error ignored;
    return (r && r->loaded) || !xn_folder_checksum(&dir->folder, name, &checksum, &ignored);
}

static xn_status delete_locked(xn_weights_dir *dir, const char *name, xn_asset **gone,
                               xn_error *error) {
    bool removed = false;
    xn_status status = xn_folder_check(&dir->folder, error);
    if (!status && has_weights_locked(dir, name)) {
        record *r = xn_names_get(&dir->records, name);
        status = xn_folder_remove(&dir->folder, name, error);
        removed = !status;
        if (status == XN_ERR_NOT_FOUND)
            status = XN_OK;
        if (!status && r)
            drop_locked(dir, r);
    }
    if (status)
        return status;
    status = xn_store_remove(dir->store, name, gone, error);
    return removed ? XN_OK : status;
}

xn_status xn_weights_dir_delete(xn_weights_dir *dir, const char *name, xn_error *error) {
    xn_error why;
    xn_asset *gone = NULL;
    pthread_mutex_lock(&dir->mutex);
    xn_status status = delete_locked(dir, name, &gone, &why);
    pthread_mutex_unlock(&dir->mutex);
    xn_asset_release(gone);
    if (!status)
        status = xn_folder_sync(&dir->folder, "the weights are deleted", &why);
    return finish(dir, status, &why, error);
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

/* Publishes what was read if the file is still the one that was read: a PUT may have come in
 * between, whose weights must stay. */
static void publish_locked(xn_weights_dir *dir, record *r, const xn_loaded_file *read,
                           xn_asset **asset) {
    xn_file_id now;
    xn_error error;
    bool created;
    if (xn_folder_stat(&dir->folder, r->name, &now, &error) || !xn_file_id_equal(&now, &read->id))
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

static xn_status read_file(xn_weights_dir *dir, const char *name, off_t size, xn_loaded_file *read,
                           xn_asset **asset, xn_error *error) {
    const off_t header = XN_PROTO_MAX_HEADER_BYTES + 8; /* at most; a value takes at least a byte */
    const xn_proto_limits limits = {dir->options.max_elements};
    if (!xn_proto_name_valid(name))
        return xn_fail(error, XN_ERR_MALFORMED, "weights-dir",
                       "its name is not that of weights (1 to %d of A-Z a-z 0-9 . _ -)",
                       XN_PROTO_MAX_NAME);
    xn_status status =
        xn_store_check_room(dir->store, name, size > header ? (size_t)(size - header) : 1, error);
    if (!status)
        status = xn_loaded_file_read(&dir->folder, name, &limits, &dir->stop, read, error);
    if (!status)
        status = xn_store_make(dir->store, name, read->tensors.weights, read->tensors.scale,
                               read->tensors.bias, asset, error);
    return status;
}

static void load(xn_weights_dir *dir, const char *name, const xn_file_id *id) {
    xn_loaded_file read = {0};
    xn_asset *asset = NULL;
    xn_error error;
    const xn_status status = read_file(dir, name, id->size, &read, &asset, &error);
    pthread_mutex_lock(&dir->mutex);
    record *r = xn_names_get(&dir->records, name);
    const bool goes_on = r && !atomic_load(&dir->stop); /* no record: it was deleted meanwhile */
    if (goes_on && !status)
        publish_locked(dir, r, &read, &asset);
    else if (goes_on && status != XN_ERR_NOT_FOUND)
        refuse_locked(dir, r, id, &error);
    pthread_mutex_unlock(&dir->mutex);
    xn_asset_release(asset);
    xn_loaded_file_free(&read);
}

/* Whether the file of that id is the one that is known. */
static bool is_current_locked(const xn_weights_dir *dir, const record *r, const xn_file_id *id) {
    uint64_t stated;
    xn_error ignored;
    if (!xn_file_id_equal(&r->id, id))
        return false;
    if (xn_now_ns() < r->until_ns ? r->bad : r->loaded && !r->bad)
        return true;
    return r->loaded && !r->bad && !xn_folder_checksum(&dir->folder, r->name, &stated, &ignored) &&
           stated == r->checksum;
}

/* Whether the file of the name has to be loaded. *gone: the weights that were its. */
static bool look_at_locked(xn_weights_dir *dir, const char *name, xn_file_id *id, xn_asset **gone) {
    xn_error error;
    record *r = xn_names_get(&dir->records, name);
    const xn_status status = xn_folder_stat(&dir->folder, name, id, &error);
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

/* A record of the name, if the file is one of a name. False without memory. */
static bool note_file(xn_weights_dir *dir, char *file, bool *crowded) {
    const size_t length = strlen(file), suffix = strlen(XN_WEIGHTS_SUFFIX);
    if (length <= suffix || strcmp(file + length - suffix, XN_WEIGHTS_SUFFIX) != 0)
        return true;
    file[length - suffix] = '\0';
    pthread_mutex_lock(&dir->mutex);
    const bool full = dir->records.count >= (size_t)dir->options.max_weights + OTHER_FILES_MAX &&
                      !xn_names_get(&dir->records, file);
    const bool noted = full || make_locked(dir, file);
    pthread_mutex_unlock(&dir->mutex);
    *crowded |= full;
    return noted;
}

static xn_status fail_listing(int cause, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, "weights-dir", "the folder cannot be listed: %s",
                   strerror(cause));
}

/* A record for each new name. */
static xn_status note_files(xn_weights_dir *dir, xn_error *error) {
    struct dirent *item;
    bool crowded = false, noted = true;
    DIR *names = xn_file_names(dir->folder.fd);
    if (!names)
        return fail_listing(errno, error);
    while (errno = 0, noted && (item = readdir(names)))
        if (!xn_temporary_expire(&dir->folder, item->d_name))
            noted = note_file(dir, item->d_name, &crowded);
    const int cause = noted ? errno : ENOMEM;
    closedir(names);
    if (crowded && !dir->crowded)
        xn_log(XN_LOG_WARN, NULL, "weights-dir: too many files; only %zu are looked at",
               dir->records.count);
    dir->crowded = crowded;
    return cause ? fail_listing(cause, error) : XN_OK;
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

static void report(xn_weights_dir *dir, xn_status status, const xn_error *error) {
    if (status && !dir->unreadable) {
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
        xn_log(XN_LOG_ERROR, NULL, "weights-dir: %s; changes there are not seen", error->message);
    } else if (!status && dir->unreadable) {
        xn_log(XN_LOG_INFO, NULL, "weights-dir: the folder can be read again");
    }
    dir->unreadable = status != XN_OK;
}

static void look_at_all(xn_weights_dir *dir) {
    char name[NAME_MAX + 1] = "";
    xn_error error;
    xn_status status = xn_folder_check(&dir->folder, &error);
    if (!status)
        status = note_files(dir, &error);
    report(dir, status, &error);
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
        const struct timespec until = xn_timespec(pause_ns ? xn_now_ns() + pause_ns : INT64_MAX);
        pthread_mutex_lock(&dir->mutex);
        while (!dir->asked && !atomic_load(&dir->stop) &&
               pthread_cond_timedwait(&dir->wake, &dir->mutex, &until) != ETIMEDOUT)
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
    xn_folder_close(&dir->folder);
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
    xn_status status = xn_folder_open(&dir->folder, options->path, error);
    if (!status)
        status = xn_thread_start(&dir->thread, "xn-weights-dir", follow, dir, error);
    if (status)
        destroy(dir);
    else
        *out = dir;
    return status;
}

xn_status xn_weights_dir_check(const char *path, xn_error *error) {
    xn_folder folder;
    xn_status status = xn_folder_open(&folder, path, error);
    xn_folder_close(&folder);
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
