/* models.c: the names of models, and what is asked and done by name. */
#include "models_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- entries; models->mutex is held ---- */

xn_model_entry *xn_models_find_locked(xn_models *models, const char *name) {
    return xn_names_get(&models->entries, name);
}

static void entry_free(xn_model_entry *entry) {
    xn_model_slots_free(entry);
    xn_mem_free(entry);
}

static void drop_locked(xn_models *models, xn_model_entry *entry) {
    xn_names_remove(&models->entries, entry);
    entry_free(entry);
}

/* An entry that is neither served nor in a folder is kept only while there is room. */
static bool may_drop(const xn_model_entry *entry) {
    return !xn_model_serving_locked(entry) && !entry->listed && !entry->pending && !entry->users;
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
    if (may_drop(entry) && !entry->tried && !entry->slot_count)
        drop_locked(models, entry);
}

void xn_models_leave(xn_models *models, xn_model_entry *entry) {
    pthread_mutex_lock(&models->mutex);
    xn_models_leave_locked(models, entry);
    pthread_mutex_unlock(&models->mutex);
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

static xn_status fail_version(const xn_model_entry *entry, const char *version,
                              const xn_model_slot *slot, xn_error *error) {
    if (slot)
        return xn_fail(error, XN_ERR_LOADING, "model",
                       "version %s of model \"%s\" is not ready: %s", version, entry->name,
                       slot->reason);
    return xn_fail(error, XN_ERR_NOT_FOUND, "model",
                   "model \"%s\" has no version \"%.24s\"; version %s serves", entry->name, version,
                   xn_model_serving_locked(entry)->version);
}

static xn_status get_locked(xn_models *models, const char *name, const char *version,
                            const xn_model **out, xn_error *error) {
    const xn_model_entry *entry = xn_models_find_locked(models, name);
    if (!entry)
        return fail_unknown(name, models->scanned, error);
    const xn_model_slot *slot = xn_model_serving_locked(entry);
    if (!slot)
        return xn_fail(error, XN_ERR_LOADING, "model", "model \"%s\" is not ready: %s", name,
                       is_loading(entry) ? "it is being loaded" : xn_model_reason_locked(entry));
    if (version && *version)
        slot = xn_model_slot_locked(entry, version);
    if (!slot || !slot->serving)
        return fail_version(entry, version, slot, error);
    *out = &slot->serving->model;
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
    xn_status status = xn_models_open_folder(models, name, NULL, overrides, &folder, &why);
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

void xn_models_versions(xn_models *models, const char *name, xn_model_versions *out) {
    *out = (xn_model_versions){0};
    pthread_mutex_lock(&models->mutex);
    const xn_model_entry *entry = xn_models_find_locked(models, name);
    for (int i = 0; entry && i < entry->slot_count && out->count < XN_VERSIONS_MAX; i++)
        if (entry->slots[i].serving)
            snprintf(out->names[out->count++], sizeof out->names[0], "%.18s",
                     entry->slots[i].version);
    pthread_mutex_unlock(&models->mutex);
}

/* slot: NULL where none is known. */
static void describe_locked(const xn_model_entry *entry, const xn_model_slot *slot,
                            xn_model_item *out) {
    *out = (xn_model_item){.state = slot && slot->serving ? XN_MODEL_READY
                                    : is_loading(entry)   ? XN_MODEL_LOADING
                                                          : XN_MODEL_UNAVAILABLE};
    memcpy(out->name, entry->name, sizeof out->name);
    if (slot)
        memcpy(out->version, slot->version, sizeof out->version);
    if (out->state == XN_MODEL_UNAVAILABLE)
        memcpy(out->reason, slot ? slot->reason : entry->reason, sizeof out->reason);
}

static size_t items_locked(const xn_models *models) {
    size_t count = 0;
    for (size_t i = 0; i < models->entries.count; i++) {
        const xn_model_entry *entry = models->entries.items[i];
        count += entry->slot_count ? (size_t)entry->slot_count : 1;
    }
    return count;
}

xn_status xn_models_list(xn_models *models, xn_model_item **items, size_t *count, xn_error *error) {
    pthread_mutex_lock(&models->mutex);
    size_t listed = items_locked(models), at = 0;
    xn_model_item *list = xn_mem_zalloc(listed, sizeof *list);
    for (size_t i = 0; list && i < models->entries.count; i++) {
        const xn_model_entry *entry = models->entries.items[i];
        if (!entry->slot_count)
            describe_locked(entry, NULL, &list[at++]);
        for (int k = 0; k < entry->slot_count; k++)
            describe_locked(entry, &entry->slots[k], &list[at++]);
    }
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
    models->policy = &config->versions;
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
