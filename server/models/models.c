/* models.c: the names of models: which version of each serves, and what changes that. */
#include "models_internal.h"

#include "clock.h"
#include "log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- entries; models->mutex is held ---- */

xn_model_entry *xn_models_find_locked(xn_models *models, const char *name) {
    return xn_names_get(&models->entries, name);
}

static void entry_free(xn_model_entry *entry) {
    if (entry->serving)
        xn_model_release(&entry->serving->model);
    xn_model_counters_release(entry->counters);
    xn_mem_free(entry);
}

static void drop_locked(xn_models *models, xn_model_entry *entry) {
    xn_names_remove(&models->entries, entry);
    entry_free(entry);
}

/* An entry that is neither served nor in a folder is kept only while there is room. */
static bool may_drop(const xn_model_entry *entry) {
    return !entry->serving && !entry->listed && !entry->pending && !entry->users;
}

static xn_status make_room_locked(xn_models *models, xn_error *error) {
    xn_names *entries = &models->entries;
    if (entries->count >= models->max_models) {
        size_t at = 0;
        while (at < entries->count && !may_drop(entries->items[at]))
            at++;
        if (at == entries->count)
            return xn_fail_limit(error, "max-models", "model",
                                 "there are %zu models; --max-models is %zu", entries->count,
                                 models->max_models);
        drop_locked(models, entries->items[at]);
    }
    if (!xn_names_reserve(entries))
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for another model");
    return XN_OK;
}

static xn_status make_locked(xn_models *models, const char *name, xn_model_entry **out,
                             xn_error *error) {
    xn_status status = make_room_locked(models, error);
    if (status != XN_OK)
        return status;
    xn_model_entry *entry = xn_mem_zalloc(1, sizeof *entry);
    if (!entry)
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for another model");
    snprintf(entry->name, sizeof entry->name, "%s", name);
    xn_names_insert(&models->entries, entry);
    *out = entry;
    return XN_OK;
}

xn_status xn_models_enter_locked(xn_models *models, const char *name, xn_model_entry **out,
                                 xn_error *error) {
    xn_status status = XN_OK;
    *out = xn_models_find_locked(models, name);
    if (!*out)
        status = make_locked(models, name, out, error);
    if (status == XN_OK)
        (*out)->users++;
    return status;
}

void xn_models_leave_locked(xn_models *models, xn_model_entry *entry) {
    entry->users--;
    if (may_drop(entry) && !entry->counters && !entry->fingerprint) /* it was never loaded */
        drop_locked(models, entry);
}

void xn_models_leave(xn_models *models, xn_model_entry *entry) {
    pthread_mutex_lock(&models->mutex);
    xn_models_leave_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
}

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

/* ---- loading ---- */

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

/* fd -1 where there is no folder, and none is needed. */
static xn_status open_folder(xn_models *models, const char *name,
                             const xn_model_overrides *overrides, xn_model_folder *out,
                             xn_error *error) {
    xn_model_location location;
    *out = (xn_model_folder){.fd = -1, .root = -1};
    bool known = find_location(models, name, &location);
    xn_status status = known ? xn_model_folder_open(&location, out, error)
                             : xn_fail(error, XN_ERR_NOT_FOUND, "model",
                                       "there is no model \"%s\": --model names none, and there is "
                                       "no --model-repository",
                                       name);
    return status == XN_ERR_NOT_FOUND && gives_all(overrides) ? XN_OK : status;
}

/* Whether the name's folder is another one by now, or has other files. */
static bool has_changed(xn_models *models, const char *name, const xn_model_folder *was) {
    xn_model_folder now;
    xn_model_location location;
    if (was->fd < 0 || !find_location(models, name, &location))
        return false;
    if (xn_model_folder_open(&location, &now, NULL) != XN_OK)
        return true;
    bool changed = now.fingerprint != was->fingerprint;
    xn_model_folder_close(&now);
    return changed;
}

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
static xn_status read_version(xn_models *models, const char *name,
                              const xn_model_overrides *overrides, xn_model_version **out,
                              uint64_t *fingerprint, xn_error *error) {
    for (int last = 0;; last++) {
        xn_model_folder folder;
        xn_model_version *version = NULL;
        xn_status status = open_folder(models, name, overrides, &folder, error);
        if (status != XN_OK)
            return status;
        const int64_t reading = begin_reading(models, &folder);
        status = xn_model_version_read(name, &folder, overrides, &models->limits, &version, error);
        end_reading(models, reading);
        bool changed = has_changed(models, name, &folder);
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

/* Counts so much more memory of a version; what it replaces counts until it does, but may go. */
static xn_status reserve(xn_models *models, const xn_model_entry *entry, int64_t more,
                         xn_error *error) {
    xn_status status = XN_OK;
    const int64_t most = models->limits.max_bytes;
    pthread_mutex_lock(&models->mutex);
    int64_t others = models->bytes - (entry->serving ? (int64_t)entry->serving->host_bytes : 0);
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
static xn_status prepare(xn_models *models, const xn_model_entry *entry, xn_model_version *version,
                         xn_error *error) {
    xn_network *network = version->network;
    version->network = NULL; /* the store's, whatever comes */
    xn_status status = xn_store_make_network(models->store, network, &version->model.asset, error);
    if (status != XN_OK)
        return status;
    xn_problem_of_network(network, &version->model.problem);
    const int64_t more = (int64_t)xn_asset_held_bytes(version->model.asset);
    status = reserve(models, entry, more, error);
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

/* Returns what served before. Takes the reference. */
static xn_model_version *publish_locked(xn_models *models, xn_model_entry *entry,
                                        xn_model_version *version) {
    xn_model_version *before = entry->serving;
    if (before)
        unreserve_locked(models, before);
    if (entry->counters && !strcmp(entry->version, version->version)) {
        xn_model_counters_release(version->counters); /* no request has been counted in it yet */
        xn_model_counters_retain(version->counters = entry->counters);
    } else {
        xn_model_counters_release(entry->counters);
        xn_model_counters_retain(entry->counters = version->counters);
    }
    memcpy(entry->version, version->version, sizeof entry->version);
    entry->reason[0] = '\0';
    entry->serving = version;
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

/* The end of a load that failed: what served serves on. */
static void fail_locked(xn_model_entry *entry, const xn_error *why) {
    entry->failed = true;
    if (!entry->serving)
        snprintf(entry->reason, sizeof entry->reason, "%s", why->message);
}

/* Whether a failure is about the model: not that the service ends, or that there is no such model.
 */
static bool is_about_model(const xn_model_entry *entry, xn_status status) {
    return status != XN_OK && status != XN_ERR_DRAINING &&
           (status != XN_ERR_NOT_FOUND || entry->listed);
}

static xn_status load_exclusively(xn_models *models, xn_model_entry *entry,
                                  const xn_model_overrides *overrides, xn_error *error) {
    xn_model_version *version = NULL, *before = NULL;
    uint64_t fingerprint = 0;
    int64_t began_ns = xn_now_ns();
    xn_error why = {0};
    bool reserved = false;
    xn_status status = read_version(models, entry->name, overrides, &version, &fingerprint, &why);
    if (status == XN_OK) {
        status = reserve(models, entry, (int64_t)version->host_bytes, &why);
        reserved = status == XN_OK;
    }
    if (status == XN_OK)
        status = prepare(models, entry, version, &why);
    if (status == XN_OK)
        status = run_warm_up(models, version, &why);
    if (status == XN_OK)
        log_load(entry, version, began_ns);

    pthread_mutex_lock(&models->mutex);
    if (status != XN_OK && reserved)
        unreserve_locked(models, version);
    if (status != XN_ERR_NOT_FOUND && status != XN_ERR_DRAINING)
        entry->fingerprint = fingerprint ? fingerprint : 1;
    entry->failed = false;
    if (status == XN_OK)
        before = publish_locked(models, entry, version);
    bool reported = is_about_model(entry, status), serving = entry->serving;
    if (reported)
        fail_locked(entry, &why);
    end_exclusive_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
    if (reported)
        log_failure(entry, &why, serving);
    if (status != XN_OK)
        before = version; /* NULL where reading failed */
    if (before)
        retire(before);
    atomic_store(&models->changed, true);
    if (status != XN_OK && error)
        *error = why;
    return status;
}

/* Whether the folder is as it was when it was loaded last, and that went well. */
static bool is_unchanged(xn_models *models, xn_model_entry *entry) {
    xn_model_folder now;
    if (!entry->fingerprint || entry->failed ||
        open_folder(models, entry->name, NULL, &now, NULL) != XN_OK)
        return false;
    xn_model_folder_close(&now);
    return now.fingerprint == entry->fingerprint;
}

xn_status xn_models_load_entry(xn_models *models, xn_model_entry *entry,
                               const xn_model_overrides *overrides, xn_model_when when,
                               xn_error *error) {
    begin_exclusive(models, entry);
    if (when == XN_MODEL_LOAD_ALWAYS || !is_unchanged(models, entry))
        return load_exclusively(models, entry, overrides, error);
    pthread_mutex_lock(&models->mutex);
    end_exclusive_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
    return XN_OK;
}

void xn_models_unload_entry(xn_models *models, xn_model_entry *entry, const char *reason) {
    begin_exclusive(models, entry);
    pthread_mutex_lock(&models->mutex);
    xn_model_version *before = entry->serving;
    if (before)
        unreserve_locked(models, before);
    entry->serving = NULL;
    snprintf(entry->reason, sizeof entry->reason, "%s", reason);
    end_exclusive_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
    if (!before)
        return;
    xn_log(XN_LOG_INFO, NULL, "model \"%s\" version %s unloaded: %s", entry->name, before->version,
           reason);
    retire(before);
    atomic_store(&models->changed, true);
}

/* ---- the interface ---- */

static xn_status fail_unknown(const char *name, bool scanned, xn_error *error) {
    if (!scanned)
        return xn_fail(error, XN_ERR_LOADING, "model",
                       "there is no model \"%.128s\" yet; the daemon is still loading models; try "
                       "again later",
                       name);
    return xn_fail(error, XN_ERR_NOT_FOUND, "model", "there is no model \"%.128s\"", name);
}

static bool is_loading(const xn_model_entry *entry) {
    return entry->busy || entry->pending;
}

static xn_status get_locked(xn_models *models, const char *name, const char *version,
                            const xn_model **out, xn_error *error) {
    const xn_model_entry *entry = xn_models_find_locked(models, name);
    if (!entry)
        return fail_unknown(name, models->scanned, error);
    if (!entry->serving)
        return xn_fail(error, XN_ERR_LOADING, "model", "model \"%s\" is not ready: %s", name,
                       is_loading(entry) ? "it is being loaded" : entry->reason);
    if (version && *version && strcmp(version, entry->serving->version) != 0)
        return xn_fail(error, XN_ERR_NOT_FOUND, "model",
                       "model \"%s\" has no version \"%.24s\"; version %s serves", name, version,
                       entry->serving->version);
    *out = &entry->serving->model;
    xn_model_retain(*out);
    return XN_OK;
}

xn_status xn_models_get(xn_models *models, const char *name, const char *version,
                        const xn_model **out, xn_error *error) {
    pthread_mutex_lock(&models->mutex);
    xn_status status = get_locked(models, name, version, out, error);
    pthread_mutex_unlock(&models->mutex);
    return status;
}

/* Whether an unknown name has a folder or all overrides. Otherwise its entry could evict another
 * one. */
static xn_status look_for_new(xn_models *models, const char *name,
                              const xn_model_overrides *overrides, xn_error *error) {
    xn_model_folder folder;
    xn_error why = {0};
    pthread_mutex_lock(&models->mutex);
    bool known = xn_models_find_locked(models, name);
    pthread_mutex_unlock(&models->mutex);
    if (known)
        return XN_OK;
    xn_status status = open_folder(models, name, overrides, &folder, &why);
    xn_model_folder_close(&folder);
    if (status == XN_ERR_NOT_FOUND && error)
        *error = why;
    return status == XN_ERR_NOT_FOUND ? status : XN_OK;
}

xn_status xn_models_load(xn_models *models, const char *name, const char *config,
                         size_t config_length, const xn_model_file *files, int file_count,
                         xn_error *error) {
    const xn_model_overrides overrides = {config, config_length, files, file_count};
    xn_model_entry *entry = NULL;
    if (!xn_proto_name_valid(name))
        return xn_fail(error, XN_ERR_NOT_FOUND, "model", "\"%.128s\" is no name of a model", name);
    xn_status status = look_for_new(models, name, &overrides, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&models->mutex);
    status = xn_models_enter_locked(models, name, &entry, error);
    pthread_mutex_unlock(&models->mutex);
    if (status != XN_OK)
        return status;
    status = xn_models_load_entry(models, entry, &overrides, XN_MODEL_LOAD_ALWAYS, error);
    xn_models_leave(models, entry);
    return status;
}

xn_status xn_models_unload(xn_models *models, const char *name, xn_error *error) {
    pthread_mutex_lock(&models->mutex);
    xn_model_entry *entry = xn_models_find_locked(models, name);
    bool scanned = models->scanned;
    if (entry)
        entry->users++;
    pthread_mutex_unlock(&models->mutex);
    if (!entry)
        return fail_unknown(name, scanned, error);
    xn_models_unload_entry(models, entry, "unloaded by a request");
    xn_models_leave(models, entry);
    return XN_OK;
}

static void describe_locked(const xn_model_entry *entry, xn_model_item *out) {
    *out = (xn_model_item){.state = entry->serving      ? XN_MODEL_READY
                                    : is_loading(entry) ? XN_MODEL_LOADING
                                                        : XN_MODEL_UNAVAILABLE};
    memcpy(out->name, entry->name, sizeof out->name);
    memcpy(out->version, entry->version, sizeof out->version);
    if (out->state == XN_MODEL_UNAVAILABLE)
        memcpy(out->reason, entry->reason, sizeof out->reason);
}

xn_status xn_models_list(xn_models *models, xn_model_item **items, size_t *count, xn_error *error) {
    pthread_mutex_lock(&models->mutex);
    size_t listed = models->entries.count;
    xn_model_item *list = xn_mem_zalloc(listed, sizeof *list);
    for (size_t i = 0; list && i < listed; i++)
        describe_locked(models->entries.items[i], &list[i]);
    pthread_mutex_unlock(&models->mutex);
    if (!list)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to list %zu models", listed);
    *items = list;
    *count = listed;
    return XN_OK;
}

/* ---- creation ---- */

static xn_status take_sources(xn_models *models, const char *list, xn_error *error) {
    xn_config_model named;
    size_t count = 0;
    for (const char *at = list; xn_config_next_model(&at, &named);)
        count++;
    models->sources = xn_mem_zalloc(count, sizeof *models->sources);
    if (!models->sources)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for %zu models", count);
    for (; xn_config_next_model(&list, &named); models->source_count++) {
        xn_model_source *source = &models->sources[models->source_count];
        memcpy(source->name, named.name, sizeof source->name);
        memcpy(source->folder, named.folder, sizeof source->folder);
        source->named = named.name[0];
    }
    return XN_OK;
}

/* Reports a misspelt path at the start, not only as missing models. */
static xn_status look_for_repository(const char *path, xn_error *error) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return xn_fail(error, XN_ERR_IO, "model-repository",
                       "--model-repository %.200s: it cannot be opened as a folder", path);
    close(fd);
    return XN_OK;
}

xn_status xn_models_create(const xn_config *config, xn_store *store, xn_models **out,
                           xn_error *error) {
    xn_models *models = xn_mem_zalloc(1, sizeof *models);
    if (!models)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the models");
    pthread_mutex_init(&models->mutex, NULL);
    pthread_mutex_init(&models->scanning, NULL);
    pthread_cond_init(&models->progress, NULL);
    atomic_init(&models->stop, false);
    models->store = store;
    models->repository = config->model_repository[0] ? config->model_repository : NULL;
    models->max_models = (size_t)config->max_models;
    models->max_batch_images = config->max_batch_images;
    models->limits =
        (xn_model_limits){{config->max_elements, config->max_output_bytes, config->max_operations},
                          config->max_models_bytes,
                          xn_config_image_bytes(config),
                          &models->stop};
    models->scanned = !models->repository && !config->models[0];
    xn_status status = take_sources(models, config->models, error);
    if (status == XN_OK && models->repository)
        status = look_for_repository(models->repository, error);
    if (status != XN_OK) {
        xn_models_free(models);
        return status;
    }
    *out = models;
    return XN_OK;
}

void xn_models_set_warm_up(xn_models *models, xn_model_warm_up *warm_up, void *context) {
    models->warm_up = warm_up;
    models->warm_up_context = context;
}

void xn_models_stop(xn_models *models) {
    if (models)
        atomic_store(&models->stop, true);
}

bool xn_models_changed(xn_models *models) {
    return models && atomic_exchange(&models->changed, false);
}

void xn_models_free(xn_models *models) {
    if (!models)
        return;
    for (size_t i = 0; i < models->entries.count; i++)
        entry_free(models->entries.items[i]);
    xn_names_free(&models->entries);
    xn_mem_free(models->sources);
    pthread_cond_destroy(&models->progress);
    pthread_mutex_destroy(&models->scanning);
    pthread_mutex_destroy(&models->mutex);
    xn_mem_free(models);
}
