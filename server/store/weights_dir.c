/* weights_dir.c: weights that are kept: put, delete, and the thread that follows the folder. The
 * design is in weights_dir.h. */
#include "weights_dir_internal.h"

#include "clock.h"
#include "log.h"
#include "threads.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Records of files that are of no use, beside those of weights. */
#define MOST_OTHER_FILES 1000
/* Until everything was read once, or the folder can be read again. */
#define RETRY_NS (2 * XN_NS_PER_S)

static void file_of(const char *name, char file[XN_WEIGHTS_FILE_MAX]) {
    snprintf(file, XN_WEIGHTS_FILE_MAX, "%s" XN_WEIGHTS_SUFFIX, name);
}

static void count_error(xn_weights_dir *dir, const xn_error *error) {
    if (error->status != XN_ERR_IO)
        return;
    xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
}

/* ---- put ---- */

/* Of two names that differ in upper and lower case only, the file system would keep one. */
static xn_status check_case_locked(const xn_weights_dir *dir, const char *file, xn_error *error) {
    for (size_t i = 0; dir->folder.ignores_case && i < dir->kept_count; i++) {
        const char *other = dir->kept[i]->file;
        if (!strcasecmp(other, file) && strcmp(other, file) != 0)
            return xn_fail(error, XN_ERR_UNSUPPORTED, "name",
                           "there is %.140s, and the file system of --weights-dir takes upper and "
                           "lower case for the same; choose another name",
                           other);
    }
    return XN_OK;
}

/* All that can fail comes before the rename, so that file and store change together. Takes the
 * asset. */
static xn_status exchange_locked(xn_weights_dir *dir, const char *name, const char *file,
                                 const xn_aside *aside, uint64_t checksum, xn_asset *asset,
                                 bool *created, xn_store_item *item, xn_error *error) {
    xn_kept *kept = NULL;
    xn_status status =
        xn_store_check_room(dir->store, name, xn_asset_weights(asset)->host_bytes, error);
    if (!status)
        status = check_case_locked(dir, file, error);
    if (!status)
        status = xn_folder_check(&dir->folder, error);
    if (!status && !(kept = xn_kept_make_locked(dir, file)))
        status = xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for another name");
    if (!status)
        status = xn_aside_rename(&dir->folder, aside, file, error);
    if (status) {
        if (kept && !kept->loaded && !kept->bad)
            xn_kept_drop_locked(dir, kept); /* made just now */
        return status;
    }
    status = xn_store_publish(dir->store, name, asset, created, item, error);
    if (status) /* cannot be: there was room. The file is loaded at the next look. */
        return status;
    xn_kept_set_bad_locked(dir, kept, false);
    kept->loaded = true;
    kept->id = aside->id;
    kept->checksum = checksum;
    return XN_OK;
}

/* Takes the asset. */
static xn_status keep(xn_weights_dir *dir, const char *name, const xn_tensor *const tensors[3],
                      xn_asset *asset, bool *created, xn_store_item *item, xn_error *error) {
    char file[XN_WEIGHTS_FILE_MAX];
    xn_weights_file_head head;
    xn_aside aside;
    file_of(name, file);
    xn_weights_file_begin(tensors[0], tensors[1], tensors[2], &head);
    xn_status status = xn_aside_write(&dir->folder, &head, tensors, &aside, error);
    if (status) {
        xn_asset_release(asset);
        return status;
    }
    pthread_mutex_lock(&dir->mutex);
    status = exchange_locked(dir, name, file, &aside, head.checksum, asset, created, item, error);
    pthread_mutex_unlock(&dir->mutex);
    if (status) {
        xn_asset_release(asset);
        xn_aside_remove(&dir->folder, &aside);
        return status;
    }
    return xn_folder_sync(&dir->folder, "the weights are registered", error);
}

xn_status xn_weights_dir_put(xn_weights_dir *dir, const char *name, const xn_tensor *weights,
                             const xn_tensor *scale, const xn_tensor *bias, bool *created,
                             xn_store_item *item, xn_error *error) {
    const xn_tensor *const tensors[3] = {weights, scale, bias};
    xn_asset *asset = NULL;
    xn_error why = {0};
    xn_status status = xn_store_make(dir->store, name, weights, scale, bias, &asset, &why);
    if (!status)
        status = keep(dir, name, tensors, asset, created, item, &why);
    if (!status)
        return XN_OK;
    count_error(dir, &why);
    if (error)
        *error = why;
    return status;
}

/* ---- delete ---- */

/* A file that another daemon put there and this one has not met yet is deleted too; one that is
 * not ours is nobody's weights. */
static xn_status remove_locked(xn_weights_dir *dir, const char *name, const char *file,
                               bool *removed, xn_error *error) {
    uint64_t checksum;
    xn_error why;
    xn_kept *kept = xn_kept_find_locked(dir, file);
    xn_status status = xn_folder_check(&dir->folder, error);
    if (status)
        return status;
    bool loaded = kept && kept->loaded;
    if (loaded || !xn_folder_mark(&dir->folder, file, &checksum, &why)) {
        status = xn_folder_remove(&dir->folder, file, &why);
        *removed = !status;
        if (status && status != XN_ERR_NOT_FOUND) {
            *error = why;
            return status;
        }
    }
    if (kept && (loaded || *removed))
        xn_kept_drop_locked(dir, kept);
    status = xn_store_delete(dir->store, name, error);
    return *removed ? XN_OK : status;
}

xn_status xn_weights_dir_delete(xn_weights_dir *dir, const char *name, xn_error *error) {
    char file[XN_WEIGHTS_FILE_MAX];
    xn_error why = {0};
    bool removed = false;
    file_of(name, file);
    pthread_mutex_lock(&dir->mutex);
    xn_status status = remove_locked(dir, name, file, &removed, &why);
    pthread_mutex_unlock(&dir->mutex);
    if (!status)
        status = xn_folder_sync(&dir->folder, "the weights are deleted", &why);
    if (!status)
        return XN_OK;
    count_error(dir, &why);
    if (error)
        *error = why;
    return status;
}

/* ---- the thread ---- */

static void look_at_all(xn_weights_dir *dir) {
    xn_error error;
    int64_t began_ns = xn_now_ns();
    xn_status status = xn_weights_dir_scan(dir, &error);
    if (status && !dir->unreadable) {
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
        xn_log(XN_LOG_ERROR, NULL, "weights-dir %s: %s; changes there are not seen",
               dir->folder.path, error.message);
    } else if (!status && dir->unreadable) {
        xn_log(XN_LOG_INFO, NULL, "weights-dir: the folder can be read again");
    }
    dir->unreadable = status != XN_OK;
    if (status || dir->all_loaded || atomic_load(&dir->stop))
        return;
    dir->all_loaded = true;
    xn_log(XN_LOG_INFO, NULL, "weights-dir %s: %lld weights in %lld ms, %lld files skipped",
           dir->folder.path, (long long)xn_metrics_gauge(dir->metrics, XN_GAUGE_WEIGHTS),
           (long long)((xn_now_ns() - began_ns) / XN_NS_PER_MS),
           (long long)xn_metrics_gauge(dir->metrics, XN_GAUGE_WEIGHTS_DIR_SKIPPED));
    if (dir->on_loaded)
        dir->on_loaded(dir->on_loaded_context);
}

/* Follows some of what inotify tells; true when it lost count and everything is to be looked at. */
static bool follow_events(xn_weights_dir *dir) {
    _Alignas(struct inotify_event) char events[8192];
    bool all = false;
    ssize_t got = read(dir->notify_fd, events, sizeof events);
    for (const char *at = events; at < events + got && !atomic_load(&dir->stop);) {
        const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
        at += sizeof *event + event->len;
        if (!event->len || !event->name[0])
            all = true; /* the queue ran over, or it is about the folder itself */
        else if (xn_weights_dir_cares(event->name))
            xn_weights_dir_follow(dir, event->name, true);
    }
    return all;
}

static int64_t pause_ns(const xn_weights_dir *dir) {
    bool soon = !dir->all_loaded || dir->unreadable;
    if (soon && (!dir->poll_ns || dir->poll_ns > RETRY_NS))
        return RETRY_NS;
    return dir->poll_ns;
}

static void *follow(void *context) {
    xn_weights_dir *dir = context;
    struct pollfd ready[2] = {{.fd = dir->wake_fd, .events = POLLIN},
                              {.fd = dir->notify_fd, .events = POLLIN}};
    int64_t next_ns = xn_now_ns();
    while (!atomic_load(&dir->stop)) {
        int64_t left_ns = next_ns - xn_now_ns();
        if (left_ns <= 0) {
            look_at_all(dir);
            int64_t pause = pause_ns(dir);
            next_ns = pause ? xn_now_ns() + pause : INT64_MAX;
            continue;
        }
        int64_t left_ms = (left_ns + XN_NS_PER_MS - 1) / XN_NS_PER_MS;
        poll(ready, 2, next_ns == INT64_MAX || left_ms > INT_MAX ? -1 : (int)left_ms);
        if (dir->notify_fd >= 0 && ready[1].revents && follow_events(dir))
            next_ns = xn_now_ns();
    }
    return NULL;
}

/* ---- opening and closing ---- */

static xn_status watch(xn_weights_dir *dir, xn_error *error) {
    const uint32_t what = IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE | IN_ATTRIB |
                          IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
    char self[64]; /* of the folder that is open, whatever the path leads to */
    snprintf(self, sizeof self, "/proc/self/fd/%d", dir->folder.fd);
    dir->notify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (dir->notify_fd >= 0 && inotify_add_watch(dir->notify_fd, self, what) < 0 &&
        inotify_add_watch(dir->notify_fd, dir->folder.path, what) < 0) {
        close(dir->notify_fd);
        dir->notify_fd = -1;
    }
    if (dir->notify_fd >= 0)
        return XN_OK;
    if (!dir->poll_ns)
        return xn_fail(error, XN_ERR_IO, "weights-poll-ms",
                       "--weights-poll-ms is 0, but the system does not tell of changes in "
                       "--weights-dir (inotify: %s); give an interval",
                       strerror(errno));
    xn_log(XN_LOG_WARN, NULL, "weights-dir: no inotify (%s); changes are seen every %lld ms",
           strerror(errno), (long long)(dir->poll_ns / XN_NS_PER_MS));
    return XN_OK;
}

static xn_status start(xn_weights_dir *dir, bool no_notify, xn_error *error) {
    xn_status status = XN_OK;
    dir->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (dir->wake_fd < 0)
        return xn_fail(error, XN_ERR_IO, "weights-dir", "no eventfd for --weights-dir: %s",
                       strerror(errno));
    if (!no_notify)
        status = watch(dir, error);
    return status ? status : xn_thread_start(&dir->thread, "xn-weights-dir", follow, dir, error);
}

static void destroy(xn_weights_dir *dir) {
    if (dir->notify_fd >= 0)
        close(dir->notify_fd);
    if (dir->wake_fd >= 0)
        close(dir->wake_fd);
    xn_folder_close(&dir->folder);
    xn_kept_free_all(dir);
    pthread_mutex_destroy(&dir->mutex);
    xn_mem_free(dir);
}

xn_status xn_weights_dir_open(const xn_weights_dir_options *options, xn_store *store,
                              xn_metrics *metrics, xn_weights_dir **out, xn_error *error) {
    xn_weights_dir *dir = xn_mem_zalloc(1, sizeof *dir);
    if (!dir)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for --weights-dir");
    pthread_mutex_init(&dir->mutex, NULL);
    atomic_init(&dir->stop, false);
    dir->folder.fd = dir->notify_fd = dir->wake_fd = -1;
    dir->store = store;
    dir->metrics = metrics;
    dir->poll_ns = options->poll_ms * XN_NS_PER_MS;
    dir->limits.max_elements = options->max_elements;
    dir->max_bytes = options->max_weights_bytes;
    dir->most_files = (size_t)options->max_weights + MOST_OTHER_FILES;
    dir->on_loaded = options->loaded;
    dir->on_loaded_context = options->context;
    xn_status status = xn_folder_open(&dir->folder, options->path, error);
    if (!status)
        status = start(dir, options->no_notify, error);
    if (status) {
        destroy(dir);
        return status;
    }
    *out = dir;
    return XN_OK;
}

xn_status xn_weights_dir_check(const char *path, xn_error *error) {
    xn_folder folder = {.fd = -1};
    xn_status status = xn_folder_open(&folder, path, error);
    if (!status)
        xn_folder_close(&folder);
    return status;
}

void xn_weights_dir_close(xn_weights_dir *dir) {
    if (!dir)
        return;
    const uint64_t one = 1;
    atomic_store(&dir->stop, true);
    if (write(dir->wake_fd, &one, sizeof one) < 0)
        xn_log(XN_LOG_WARN, NULL, "weights-dir: cannot wake its thread: %s", strerror(errno));
    pthread_join(dir->thread, NULL);
    destroy(dir);
}
