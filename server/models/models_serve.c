/* models_serve.c: which versions of a name serve: loading what its folder has, and unloading. A
 * version takes its place when it is on the devices and warm; those that --version-policy no longer
 * names go when all that it names are there. So a name that serves goes on to. */
#include "models_internal.h"

#include "clock.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

/* ---- slots ---- */

xn_model_slot *xn_model_serving_locked(const xn_model_entry *entry) {
    for (int i = entry->slot_count - 1; i >= 0; i--)
        if (entry->slots[i].serving)
            return &entry->slots[i];
    return NULL;
}

xn_model_slot *xn_model_slot_locked(const xn_model_entry *entry, const char *version) {
    for (int i = 0; i < entry->slot_count; i++)
        if (!strcmp(entry->slots[i].version, version))
            return &entry->slots[i];
    return NULL;
}

const char *xn_model_reason_locked(const xn_model_entry *entry) {
    return entry->slot_count ? entry->slots[entry->slot_count - 1].reason : entry->reason;
}

void xn_model_forget_locked(xn_model_entry *entry) {
    for (int i = 0; i < entry->slot_count; i++)
        entry->slots[i].fingerprint = 0;
    entry->tried = false;
}

void xn_model_slots_free(xn_model_entry *entry) {
    for (int i = 0; i < entry->slot_count; i++) {
        if (entry->slots[i].serving)
            xn_model_release(&entry->slots[i].serving->model);
        xn_model_counters_release(entry->slots[i].counters);
    }
    xn_mem_free(entry->slots);
}

/* ---- one thread at a time ---- */

/* Single flight: from here to end_exclusive_locked the entry is this thread's to change. */
static void begin_exclusive(xn_models *models, xn_model_entry *entry) {
    pthread_mutex_lock(&models->mutex);
    while (entry->busy)
        pthread_cond_wait(&models->progress, &models->mutex);
    entry->busy = true;
    pthread_mutex_unlock(&models->mutex);
}

static void end_exclusive_locked(xn_models *models, xn_model_entry *entry) {
    entry->busy = entry->pending = false;
    pthread_cond_broadcast(&models->progress);
}

/* ---- folders ---- */

/* The folder of the name: one of --model, or of that name in the repository. */
static bool find_location(xn_models *models, const char *name, xn_model_location *out) {
    pthread_mutex_lock(&models->mutex);
    size_t i = 0;
    while (i < models->source_count && strcmp(models->sources[i].name, name) != 0)
        i++;
    pthread_mutex_unlock(&models->mutex);
    *out = (xn_model_location){models->repository, name};
    if (i < models->source_count)
        *out = (xn_model_location){NULL, models->sources[i].folder};
    return out->repository || i < models->source_count;
}

/* Whether a folder is not needed. */
static bool gives_all(const xn_model_overrides *overrides) {
    if (!overrides || !overrides->file_count)
        return false;
    bool all = overrides->config != NULL;
    for (int i = 0; i < overrides->file_count && !all; i++) {
        const char *path = overrides->files[i].path, *slash = strrchr(path, '/');
        all = !strcmp(slash ? slash + 1 : path, XN_MODEL_CONFIG_FILE);
    }
    return all;
}

static xn_status fail_no_folder(const char *name, xn_error *error) {
    return xn_fail(error, XN_ERR_NOT_FOUND, "model",
                   "there is no model \"%s\": --model names none, and there is no "
                   "--model-repository",
                   name);
}

/* The version of files that come without a folder: the number in front of a path. */
static void version_of_files(const xn_model_overrides *overrides, char version[24]) {
    snprintf(version, 24, XN_MODEL_FIRST_VERSION);
    for (int i = 0; overrides && i < overrides->file_count; i++) {
        const char *path = overrides->files[i].path, *slash = strchr(path, '/');
        if (slash && xn_version_valid(path, (size_t)(slash - path)))
            snprintf(version, 24, "%.*s", (int)(slash - path), path);
    }
}

xn_status xn_models_open_folder(xn_models *models, const char *name, const char *version,
                                const xn_model_overrides *overrides, xn_model_folder *out,
                                xn_error *error) {
    xn_model_location location;
    *out = (xn_model_folder){.fd = -1, .root = -1};
    bool known = find_location(models, name, &location);
    xn_status status =
        known ? xn_model_folder_open(&location, version, out, error) : fail_no_folder(name, error);
    if (status != XN_ERR_NOT_FOUND || !gives_all(overrides))
        return status;
    version_of_files(overrides, out->version);
    return XN_OK;
}

/* The versions that are to serve; those of files in a request are one. */
static xn_status find_wanted(xn_models *models, const char *name,
                             const xn_model_overrides *overrides, xn_model_versions *out,
                             xn_error *error) {
    xn_model_location location;
    bool known = find_location(models, name, &location);
    xn_status status = known ? xn_model_folder_versions(&location, models->policy, out, error)
                             : fail_no_folder(name, error);
    if (status != XN_ERR_NOT_FOUND || !gives_all(overrides))
        return status;
    char version[24];
    version_of_files(overrides, version);
    *out = (xn_model_versions){.count = 1};
    snprintf(out->names[0], sizeof out->names[0], "%.18s", version);
    return XN_OK;
}

/* Of the version's folder, as it is now; 0: it cannot be opened. */
static uint64_t fingerprint_of(xn_models *models, const char *name, const char *version) {
    xn_model_folder now;
    if (xn_models_open_folder(models, name, version, NULL, &now, NULL) != XN_OK)
        return 0;
    xn_model_folder_close(&now);
    return now.fingerprint;
}

/* ---- loading ---- */

/* A load of a name, under way. */
typedef struct loading {
    xn_models *models;
    xn_model_entry *entry;
    const xn_model_overrides *overrides;
    xn_model_when when;
    xn_model_versions wanted; /* that are to serve when it is over */
} loading;

/* The files of loads that run side by side have no more bytes together than models may have: one
 * that does not fit waits for the others. Returns what end_reading gives back. */
static int64_t begin_reading(xn_models *models, const xn_model_folder *folder) {
    const int64_t most = models->limits.max_bytes;
    int64_t bytes = xn_model_folder_bytes(folder);
    bytes = bytes < most ? bytes : most; /* what has more is refused unread */
    pthread_mutex_lock(&models->mutex);
    while (models->reading > most - bytes)
        pthread_cond_wait(&models->progress, &models->mutex);
    models->reading += bytes;
    pthread_mutex_unlock(&models->mutex);
    return bytes;
}

static void end_reading(xn_models *models, int64_t bytes) {
    pthread_mutex_lock(&models->mutex);
    models->reading -= bytes;
    pthread_cond_broadcast(&models->progress);
    pthread_mutex_unlock(&models->mutex);
}

/* Reads the folder, and once more where it changed meanwhile: a copy into it may be under way.
 * *fingerprint: of the folder that was read, 0 for none. */
static xn_status read_version(const loading *l, const char *number, xn_model_version **out,
                              uint64_t *fingerprint, xn_error *error) {
    xn_models *models = l->models;
    const char *name = l->entry->name;
    for (int last = 0;; last++) {
        xn_model_folder folder;
        xn_model_version *version = NULL;
        xn_status status =
            xn_models_open_folder(models, name, number, l->overrides, &folder, error);
        if (status != XN_OK)
            return status;
        const int64_t reading = begin_reading(models, &folder);
        status =
            xn_model_version_read(name, &folder, l->overrides, &models->limits, &version, error);
        end_reading(models, reading);
        const bool changed =
            folder.fd >= 0 && fingerprint_of(models, name, folder.version) != folder.fingerprint;
        *fingerprint = folder.fingerprint;
        xn_model_folder_close(&folder);
        if (!changed || atomic_load(&models->stop)) {
            *out = version;
            return status;
        }
        if (version)
            xn_model_release(&version->model);
        if (last && status == XN_ERR_LOADING) /* it says which file */
            return status;
        if (last)
            return xn_fail(error, XN_ERR_LOADING, "model",
                           "its folder changed while it was read; load it again once all files are "
                           "written");
    }
}

xn_status xn_model_fail_bytes(int64_t bytes, int64_t others, int64_t most, xn_error *error) {
    return xn_fail_limit(error, "max-models-bytes", "model",
                         "it takes %lld bytes and the other loaded models %lld; "
                         "--max-models-bytes is %lld",
                         (long long)bytes, (long long)others, (long long)most);
}

/* Bytes of what a load replaces: the version itself, and those that go when it is over. */
static int64_t replaced_locked(const loading *l, const char *number) {
    int64_t bytes = 0;
    for (int i = 0; i < l->entry->slot_count; i++) {
        const xn_model_slot *slot = &l->entry->slots[i];
        if (slot->serving &&
            (!strcmp(slot->version, number) || !xn_model_versions_have(&l->wanted, slot->version)))
            bytes += (int64_t)slot->serving->host_bytes;
    }
    return bytes;
}

/* Counts `more` bytes of a version. What it is about to replace stays in models->bytes, but is not
 * held against the limit. */
static xn_status reserve(const loading *l, const char *number, int64_t more, xn_error *error) {
    xn_models *models = l->models;
    xn_status status = XN_OK;
    const int64_t most = models->limits.max_bytes;
    pthread_mutex_lock(&models->mutex);
    int64_t others = models->bytes - replaced_locked(l, number);
    if (more > most - others)
        status = xn_model_fail_bytes(more, others, most, error);
    else
        models->bytes += more;
    pthread_mutex_unlock(&models->mutex);
    return status;
}

static void unreserve_locked(xn_models *models, const xn_model_version *version) {
    models->bytes -= (int64_t)version->host_bytes;
}

/* Puts the network on the devices; what that takes of the host's memory is known then. */
static xn_status prepare(const loading *l, xn_model_version *version, xn_error *error) {
    xn_network *network = version->network;
    version->network = NULL; /* the store's, whatever comes */
    xn_status status =
        xn_store_make_network(l->models->store, network, &version->model.asset, error);
    if (status != XN_OK)
        return status;
    xn_problem_of_network(network, &version->model.problem);
    const int64_t more = (int64_t)xn_asset_held_bytes(version->model.asset);
    status = reserve(l, version->version, more, error);
    if (status == XN_OK)
        version->host_bytes += (size_t)more;
    return status;
}

/* The most images that requests make a batch of, by the model and by the limits of a request. */
static int64_t largest_batch(const xn_models *models, const xn_model *model) {
    const xn_conv_limits *limits = &models->limits.of_image;
    const int64_t operations = xn_problem_operations(&model->problem);
    const int64_t bytes = (int64_t)xn_problem_output_bytes(&model->problem);
    int64_t most = models->max_batch_images;
    if (most > model->max_batch_size)
        most = model->max_batch_size;
    if (operations && most > limits->max_operations / operations)
        most = limits->max_operations / operations;
    if (bytes && most > limits->max_output_bytes / bytes)
        most = limits->max_output_bytes / bytes;
    return most < 1 ? 1 : most;
}

static xn_status run_warm_up(const xn_models *models, const xn_model_version *version,
                             xn_error *error) {
    const xn_model *model = &version->model;
    return models->warm_up ? models->warm_up(models->warm_up_context, model,
                                             largest_batch(models, model), error)
                           : XN_OK;
}

/* The slot of that version, made where there is none; NULL without memory or room. */
static xn_model_slot *take_slot_locked(xn_model_entry *entry, const char *version) {
    xn_model_slot *slot = xn_model_slot_locked(entry, version);
    const size_t count = (size_t)entry->slot_count;
    if (slot || count >= 2 * XN_VERSIONS_MAX) /* those that are wanted, and those before them */
        return slot;
    xn_model_slot *slots = xn_mem_zalloc(count + 1, sizeof *slots);
    if (!slots)
        return NULL;
    size_t at = 0;
    while (at < count && xn_model_version_higher(version, entry->slots[at].version))
        at++;
    if (count) {
        memcpy(slots, entry->slots, at * sizeof *slots);
        memcpy(slots + at + 1, entry->slots + at, (count - at) * sizeof *slots);
    }
    xn_mem_free(entry->slots);
    entry->slots = slots;
    entry->slot_count++;
    snprintf(slots[at].version, sizeof slots[at].version, "%s", version);
    return &slots[at];
}

/* Returns what served before. Takes the reference. */
static xn_model_version *publish_locked(xn_models *models, xn_model_slot *slot,
                                        xn_model_version *version) {
    xn_model_version *before = slot->serving;
    if (before)
        unreserve_locked(models, before);
    if (slot->counters) {
        xn_model_counters_release(
            version->model.counters); /* no request has been counted in it yet */
        xn_model_counters_retain(version->model.counters = slot->counters);
    } else {
        xn_model_counters_retain(slot->counters = version->model.counters);
    }
    slot->reason[0] = '\0';
    slot->serving = version;
    return before;
}

/* No longer served; requests may still hold references. */
static void retire(xn_model_version *version) {
    xn_asset_retire(version->model.asset);
    xn_model_release(&version->model);
}

static void log_load(const xn_model_entry *entry, const xn_model_version *version,
                     int64_t began_ns) {
    xn_log(XN_LOG_INFO, NULL,
           "model \"%s\" version %s loaded: %d layers in %d steps, %zu bytes, %lld ms", entry->name,
           version->version, version->layer_count, version->step_count, version->host_bytes,
           (long long)((xn_now_ns() - began_ns) / XN_NS_PER_MS));
}

static void log_failure(const xn_model_entry *entry, const xn_error *why, bool serving) {
    xn_log(XN_LOG_ERROR, NULL, "model \"%s\" cannot be loaded: %s%s", entry->name, why->message,
           serving ? "; the version that served before serves on" : "");
}

/* Whether a failure is about the model: not that the service ends, or that there is no such model.
 */
static bool is_about_model(const xn_model_entry *entry, xn_status status) {
    return status != XN_OK && status != XN_ERR_DRAINING &&
           (status != XN_ERR_NOT_FOUND || entry->listed);
}

/* What served serves on. A version that never did is shown beside those that do. */
static void fail_locked(xn_model_entry *entry, const char *number, const xn_error *why) {
    xn_model_slot *slot = number && entry->slot_count ? take_slot_locked(entry, number) : NULL;
    entry->failed = entry->tried = true;
    if (slot)
        slot->failed = true;
    if (slot && !slot->serving)
        snprintf(slot->reason, sizeof slot->reason, "%s", why->message);
    snprintf(entry->reason, sizeof entry->reason, "%s", why->message);
}

static void report_failure(const loading *l, const char *number, const xn_error *why) {
    if (!is_about_model(l->entry, why->status))
        return;
    pthread_mutex_lock(&l->models->mutex);
    fail_locked(l->entry, number, why);
    const bool serving = xn_model_serving_locked(l->entry);
    pthread_mutex_unlock(&l->models->mutex);
    log_failure(l->entry, why, serving);
}

/* On the devices, warm, and not yet served. */
static xn_status make_version(const loading *l, const char *number, xn_model_version **out,
                              uint64_t *fingerprint, xn_error *error) {
    xn_model_version *version = NULL;
    xn_status status = read_version(l, number, &version, fingerprint, error);
    if (status != XN_OK)
        return status;
    status = reserve(l, number, (int64_t)version->host_bytes, error);
    const bool reserved = status == XN_OK;
    if (status == XN_OK)
        status = prepare(l, version, error);
    if (status == XN_OK)
        status = run_warm_up(l->models, version, error);
    if (status == XN_OK) {
        *out = version;
        return XN_OK;
    }
    pthread_mutex_lock(&l->models->mutex);
    if (reserved)
        unreserve_locked(l->models, version);
    pthread_mutex_unlock(&l->models->mutex);
    retire(version);
    return status;
}

static xn_status load_version(const loading *l, const char *number, xn_error *error) {
    xn_models *models = l->models;
    xn_model_version *version = NULL, *before = NULL;
    uint64_t fingerprint = 0;
    const int64_t began_ns = xn_now_ns();
    xn_status status = make_version(l, number, &version, &fingerprint, error);
    if (status != XN_OK)
        return status;
    log_load(l->entry, version, began_ns);
    pthread_mutex_lock(&models->mutex);
    xn_model_slot *slot = take_slot_locked(l->entry, number);
    if (slot) {
        slot->fingerprint = fingerprint ? fingerprint : 1;
        slot->failed = false;
        before = publish_locked(models, slot, version);
    } else {
        unreserve_locked(models, version);
        before = version;
        status = xn_fail(error, XN_ERR_NO_MEMORY, "model", "no room for another version");
    }
    l->entry->tried = true;
    pthread_mutex_unlock(&models->mutex);
    if (before)
        retire(before);
    return status;
}

/* Whether the version's folder is as it was when it was loaded last, and that went well. */
static bool is_unchanged(const loading *l, const char *number) {
    const xn_model_slot *slot = xn_model_slot_locked(l->entry, number); /* this thread's */
    return slot && slot->fingerprint && !slot->failed &&
           fingerprint_of(l->models, l->entry->name, number) == slot->fingerprint;
}

/* The versions that are no longer wanted go, in one step. */
static void remove_unwanted(const loading *l) {
    xn_model_entry *entry = l->entry;
    xn_model_slot gone[XN_VERSIONS_MAX];
    int count = 0, kept = 0;
    pthread_mutex_lock(&l->models->mutex);
    for (int i = 0; i < entry->slot_count; i++)
        if (count == XN_VERSIONS_MAX ||
            xn_model_versions_have(&l->wanted, entry->slots[i].version)) {
            entry->slots[kept++] = entry->slots[i];
        } else {
            if (entry->slots[i].serving)
                unreserve_locked(l->models, entry->slots[i].serving);
            gone[count++] = entry->slots[i];
        }
    entry->slot_count = kept;
    pthread_mutex_unlock(&l->models->mutex);
    for (int i = 0; i < count; i++) {
        xn_model_counters_release(gone[i].counters);
        if (!gone[i].serving)
            continue;
        xn_log(XN_LOG_INFO, NULL, "model \"%s\" version %s is served no longer", entry->name,
               gone[i].version);
        retire(gone[i].serving);
    }
}

/* Those that are wanted, the highest first; the first failure is told. One that is gone since they
 * were looked for is XN_ERR_NOT_FOUND, and the rest is left. */
static xn_status load_wanted(const loading *l, xn_error *error) {
    const int least = l->overrides && (l->overrides->config || l->overrides->file_count)
                          ? l->wanted.count - 1
                          : 0;
    xn_status first = XN_OK;
    for (int i = l->wanted.count - 1; i >= least; i--) {
        const char *number = l->wanted.names[i];
        xn_error why = {0};
        if (l->when == XN_MODEL_LOAD_CHANGED && is_unchanged(l, number))
            continue;
        xn_status status = load_version(l, number, &why);
        if (status == XN_ERR_NOT_FOUND || status == XN_ERR_DRAINING) {
            *error = why;
            return status;
        }
        if (status != XN_OK)
            report_failure(l, number, &why);
        if (status != XN_OK && first == XN_OK) {
            first = status;
            *error = why;
        }
    }
    return first;
}

static xn_status load_exclusively(loading *l, xn_error *error) {
    enum { TRIES = 3 };
    xn_status status = XN_OK;
    for (int i = 0; i < TRIES; i++) {
        status = find_wanted(l->models, l->entry->name, l->overrides, &l->wanted, error);
        if (status != XN_OK) {
            report_failure(l, NULL, error);
            return status;
        }
        status = load_wanted(l, error);
        if (status != XN_ERR_NOT_FOUND)
            break;
    }
    if (status == XN_OK)
        remove_unwanted(l);
    else if (status == XN_ERR_NOT_FOUND)
        report_failure(l, NULL, error);
    return status;
}

xn_status xn_models_load_entry(xn_models *models, xn_model_entry *entry,
                               const xn_model_overrides *overrides, xn_model_when when,
                               xn_error *error) {
    loading l = {.models = models, .entry = entry, .overrides = overrides, .when = when};
    xn_error why = {0};
    begin_exclusive(models, entry);
    pthread_mutex_lock(&models->mutex);
    entry->failed = false;
    pthread_mutex_unlock(&models->mutex);
    xn_status status = load_exclusively(&l, &why);
    atomic_store(&models->changed, true);
    pthread_mutex_lock(&models->mutex);
    end_exclusive_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
    if (status != XN_OK && error)
        *error = why;
    return status;
}

/* ---- unloading ---- */

/* Takes the highest that serves out; NULL: none does. */
static xn_model_version *take_out_locked(xn_models *models, xn_model_entry *entry,
                                         const char *reason) {
    xn_model_slot *slot = xn_model_serving_locked(entry);
    xn_model_version *version = slot ? slot->serving : NULL;
    if (!slot)
        return NULL;
    unreserve_locked(models, version);
    slot->serving = NULL;
    snprintf(slot->reason, sizeof slot->reason, "%s", reason);
    return version;
}

void xn_models_unload_entry(xn_models *models, xn_model_entry *entry, const char *reason) {
    xn_model_version *version;
    begin_exclusive(models, entry);
    pthread_mutex_lock(&models->mutex);
    while ((version = take_out_locked(models, entry, reason))) {
        pthread_mutex_unlock(&models->mutex);
        xn_log(XN_LOG_INFO, NULL, "model \"%s\" version %s unloaded: %s", entry->name,
               version->version, reason);
        retire(version);
        atomic_store(&models->changed, true);
        pthread_mutex_lock(&models->mutex);
    }
    snprintf(entry->reason, sizeof entry->reason, "%s", reason);
    end_exclusive_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
}
