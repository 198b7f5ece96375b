/* weights_dir_follow.c: what the folder holds, held against what is known of it, and what follows
 * from that for the store. All of it runs on the folder's thread; see weights_dir.h. */
#include "weights_dir_internal.h"

#include "arrays.h"
#include "clock.h"
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While a file is younger than this, that it looks the same proves nothing: times have a grain (2 s
 * on some file systems) and inodes are used again. */
#define FRESH_NS (10 * XN_NS_PER_S)
/* Nobody writes one file for so long: its writer is gone. */
#define ASIDE_OLD_NS (600 * XN_NS_PER_S)
#define PAUSE_FIRST_NS (2 * XN_NS_PER_S) /* before a file that failed is tried again */
#define PAUSE_MOST_NS (60 * XN_NS_PER_S)

/* ---- one file ---- */

/* The name of weights that the file is, or false. */
static bool name_of(const char *file, char name[XN_PROTO_MAX_NAME + 1]) {
    size_t length = strlen(file), suffix = strlen(XN_WEIGHTS_SUFFIX);
    if (length <= suffix || length - suffix > XN_PROTO_MAX_NAME ||
        strcmp(file + length - suffix, XN_WEIGHTS_SUFFIX) != 0)
        return false;
    memcpy(name, file, length - suffix);
    name[length - suffix] = '\0';
    return xn_proto_name_valid(name);
}

/* Why it failed may be gone at the next look although the file stays as it is. */
static bool may_pass(xn_status status) {
    switch (status) {
    case XN_ERR_LIMIT:
    case XN_ERR_NO_MEMORY:
    case XN_ERR_DEVICE_MEMORY:
    case XN_ERR_DEVICE_LOST:
    case XN_ERR_IO:
        return true;
    default:
        return false;
    }
}

/* The file, as it is now, is of no use. Said once, not again at each further try. */
static void refuse_locked(xn_weights_dir *dir, const char *file, const xn_file_id *id,
                          const xn_error *why) {
    xn_kept *kept = xn_kept_find_locked(dir, file);
    if (!kept && dir->kept_count < dir->most_files)
        kept = xn_kept_make_locked(dir, file);
    if (!kept)
        return; /* met again at the next look */
    bool again = kept->bad && xn_file_id_equal(&kept->id, id);
    kept->id = *id;
    kept->seen = dir->look;
    kept->may_pass = may_pass(why->status);
    int64_t first_ns =
        dir->poll_ns && dir->poll_ns < PAUSE_FIRST_NS ? dir->poll_ns : PAUSE_FIRST_NS;
    kept->pause_ns = again && kept->pause_ns ? kept->pause_ns * 2 : first_ns;
    if (kept->pause_ns > PAUSE_MOST_NS)
        kept->pause_ns = PAUSE_MOST_NS;
    kept->retry_ns = xn_now_ns() + kept->pause_ns;
    xn_kept_set_bad_locked(dir, kept, true);
    if (again)
        return;
    xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_ERRORS, 1);
    xn_log(XN_LOG_WARN, NULL, "weights-dir: %s skipped: %s%s", file, why->message,
           kept->loaded ? "; the weights from before stay" : "");
}

static void forget_locked(xn_weights_dir *dir, xn_kept *kept) {
    char name[XN_PROTO_MAX_NAME + 1];
    if (kept->loaded && name_of(kept->file, name) && !xn_store_delete(dir->store, name, NULL))
        xn_log(XN_LOG_INFO, NULL, "weights \"%s\" deleted: their file is gone", name);
    xn_kept_drop_locked(dir, kept);
}

/* What was read is published, if it is still what the file holds. */
static void publish_locked(xn_weights_dir *dir, const char *file, const char *name,
                           const xn_loaded_file *read, xn_asset **asset) {
    xn_file_id now;
    xn_error error;
    bool created;
    if (xn_folder_stat(&dir->folder, file, &now, &error) || !xn_file_id_equal(&now, &read->id))
        return; /* the change is seen by itself */
    xn_kept *kept = xn_kept_find_locked(dir, file);
    if (!kept && !(kept = xn_kept_make_locked(dir, file)))
        return;
    kept->seen = dir->look;
    if (!kept->loaded || kept->checksum != read->checksum) {
        bool known = kept->loaded;
        if (xn_store_publish(dir->store, name, *asset, &created, NULL, &error)) {
            refuse_locked(dir, file, &now, &error);
            return;
        }
        *asset = NULL;
        xn_metrics_add(dir->metrics, XN_COUNTER_WEIGHTS_DIR_LOADS, 1);
        xn_log(dir->all_loaded ? XN_LOG_INFO : XN_LOG_DEBUG, NULL, "weights \"%s\" %s", name,
               known ? "replaced: their file changed" : "loaded from their file");
    }
    kept->loaded = true;
    kept->id = now;
    kept->checksum = read->checksum;
    xn_kept_set_bad_locked(dir, kept, false);
}

static xn_status make_asset(xn_weights_dir *dir, const char *name, const xn_loaded_file *read,
                            xn_asset **out, xn_error *error) {
    const xn_weights_given *given = &read->given;
    return xn_store_make(dir->store, name, given->weights, given->scale, given->bias, out, error);
}

static void load(xn_weights_dir *dir, const char *file, const xn_file_id *id) {
    char name[XN_PROTO_MAX_NAME + 1];
    xn_loaded_file read = {0};
    xn_asset *asset = NULL;
    xn_error error;
    xn_status status;
    if (!name_of(file, name))
        status = xn_fail(
            &error, XN_ERR_MALFORMED, "weights-dir",
            "its name is not that of weights (1 to %d of A-Z a-z 0-9 . _ -) and " XN_WEIGHTS_SUFFIX,
            XN_PROTO_MAX_NAME);
    else /* a value takes at least a byte */
        status = xn_store_check_room(dir->store, name, 1, &error);
    if (!status)
        status = xn_loaded_file_read(&dir->folder, file, &dir->limits, dir->max_bytes, &dir->stop,
                                     &read, &error);
    if (!status)
        status = make_asset(dir, name, &read, &asset, &error);
    if (status == XN_ERR_NOT_FOUND || atomic_load(&dir->stop))
        goto done; /* removed since: the next look finds that out */
    pthread_mutex_lock(&dir->mutex);
    if (!status)
        publish_locked(dir, file, name, &read, &asset);
    else
        refuse_locked(dir, file, id, &error);
    pthread_mutex_unlock(&dir->mutex);
done:
    xn_asset_release(asset);
    xn_loaded_file_free(&read);
}

static bool is_fresh(const xn_weights_dir *dir, const xn_file_id *id) {
    int64_t modified_ns =
        (int64_t)id->modified.tv_sec * XN_NS_PER_S + (int64_t)id->modified.tv_nsec;
    return xn_folder_now_ns(&dir->folder) - modified_ns < FRESH_NS;
}

/* Whether the file looks as it is known, so that there is nothing to do about it. */
static bool looks_known_locked(const xn_kept *kept, const xn_file_id *id) {
    if (!kept || !xn_file_id_equal(&kept->id, id))
        return false;
    if (!kept->bad)
        return true;
    /* Bad: what could be better now? Its permissions, or what was short. */
    return kept->id.changed.tv_sec == id->changed.tv_sec &&
           kept->id.changed.tv_nsec == id->changed.tv_nsec &&
           !(kept->may_pass && xn_now_ns() >= kept->retry_ns);
}

void xn_weights_dir_follow(xn_weights_dir *dir, const char *file, bool closely) {
    xn_file_id id = {0};
    xn_error error;
    uint64_t checksum = 0, stated = 0;
    pthread_mutex_lock(&dir->mutex); /* so that no put or delete is half done */
    xn_status status = xn_folder_stat(&dir->folder, file, &id, &error);
    xn_kept *kept = xn_kept_find_locked(dir, file);
    if (kept)
        kept->seen = dir->look;
    bool known = looks_known_locked(kept, &id);
    bool loaded = kept && kept->loaded && !kept->bad;
    checksum = kept ? kept->checksum : 0;
    if (status == XN_ERR_NOT_FOUND && kept)
        forget_locked(dir, kept);
    else if (status && status != XN_ERR_NOT_FOUND && !known)
        refuse_locked(dir, file, &id, &error);
    pthread_mutex_unlock(&dir->mutex);
    if (status)
        return;
    if (known && loaded && (closely || is_fresh(dir, &id)))
        known = !xn_folder_mark(&dir->folder, file, &stated, &error) && stated == checksum;
    if (!known)
        load(dir, file, &id);
}

/* ---- the whole folder ---- */

typedef struct file_name {
    char text[NAME_MAX + 1];
} file_name;

typedef struct listing {
    file_name *files;
    size_t count, capacity, left_out;
} listing;

static xn_status listing_add(listing *l, const char *file, size_t most, xn_error *error) {
    if (l->count == most) {
        l->left_out++;
        return XN_OK;
    }
    file_name *files = xn_array_grow(l->files, l->count, &l->capacity, sizeof *files, 64);
    if (!files)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights-dir", "no memory to list the folder");
    l->files = files;
    snprintf(files[l->count++].text, sizeof files->text, "%s", file);
    return XN_OK;
}

static size_t stem_length(const char *file) {
    size_t length = strlen(file), suffix = strlen(XN_WEIGHTS_SUFFIX);
    return length > suffix && !strcmp(file + length - suffix, XN_WEIGHTS_SUFFIX) ? length - suffix
                                                                                 : length;
}

/* In the order of names, which is not that of files: "a" comes before "a-b", '.' after '-'. */
static int by_name(const void *a, const void *b) {
    const char *first = ((const file_name *)a)->text, *second = ((const file_name *)b)->text;
    size_t m = stem_length(first), n = stem_length(second);
    int order = memcmp(first, second, m < n ? m : n);
    return order ? order : (m > n) - (m < n);
}

bool xn_weights_dir_cares(const char *file) {
    return file[0] != '.' || stem_length(file) < strlen(file);
}

static void remove_old_aside(const xn_weights_dir *dir, const char *file) {
    xn_file_id id;
    xn_error error;
    if (xn_folder_stat(&dir->folder, file, &id, &error))
        return;
    int64_t modified_ns = (int64_t)id.modified.tv_sec * XN_NS_PER_S + (int64_t)id.modified.tv_nsec;
    if (xn_folder_now_ns(&dir->folder) - modified_ns < ASIDE_OLD_NS)
        return;
    if (!xn_folder_remove(&dir->folder, file, &error))
        xn_log(XN_LOG_INFO, NULL, "weights-dir: %s removed: a writer that is gone left it", file);
}

static xn_status list(const xn_weights_dir *dir, listing *out, xn_error *error) {
    int fd = openat(dir->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream) {
        xn_status status = xn_fail(error, XN_ERR_IO, "weights-dir", "cannot list %.200s: %s",
                                   dir->folder.path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    xn_status status = XN_OK;
    const struct dirent *item;
    errno = 0;
    while (!status && (item = readdir(stream))) {
        if (xn_aside_is(item->d_name))
            remove_old_aside(dir, item->d_name);
        else if (xn_weights_dir_cares(item->d_name))
            status = listing_add(out, item->d_name, dir->most_files, error);
        errno = 0;
    }
    if (!status && errno)
        status = xn_fail(error, XN_ERR_IO, "weights-dir", "cannot list %.200s: %s",
                         dir->folder.path, strerror(errno));
    closedir(stream);
    return status;
}

/* Records that the listing did not have: gone, or made while it was read. */
static void follow_unseen(xn_weights_dir *dir) {
    char file[NAME_MAX + 1];
    for (size_t i = 0; !atomic_load(&dir->stop);) {
        pthread_mutex_lock(&dir->mutex);
        while (i < dir->kept_count && dir->kept[i]->seen == dir->look)
            i++;
        bool more = i < dir->kept_count;
        if (more) {
            snprintf(file, sizeof file, "%s", dir->kept[i]->file);
            dir->kept[i]->seen = dir->look;
        }
        pthread_mutex_unlock(&dir->mutex);
        if (!more)
            return;
        xn_weights_dir_follow(dir, file, false);
    }
}

static void report_crowd(xn_weights_dir *dir, size_t left_out) {
    if (left_out && !dir->crowded)
        xn_log(XN_LOG_WARN, NULL,
               "weights-dir: the folder has over %zu files; the others (%zu now) are not looked at",
               dir->most_files, left_out);
    dir->crowded = left_out != 0;
}

xn_status xn_weights_dir_scan(xn_weights_dir *dir, xn_error *error) {
    listing files = {0};
    xn_status status = xn_folder_check(&dir->folder, error);
    if (!status)
        status = list(dir, &files, error);
    if (!status) {
        dir->look++;
        report_crowd(dir, files.left_out);
        if (files.count)
            qsort(files.files, files.count, sizeof *files.files, by_name);
        for (size_t i = 0; i < files.count && !atomic_load(&dir->stop); i++)
            xn_weights_dir_follow(dir, files.files[i].text, false);
        follow_unseen(dir);
    }
    xn_mem_free(files.files);
    return status;
}
