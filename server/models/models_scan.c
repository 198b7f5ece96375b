/* models_scan.c: the models that the configuration names, against those that are known. Names are
 * collected first, so that all that is about to be loaded is listed as such; then each is loaded,
 * one after the other. */
#include "models_internal.h"

#include "log.h"

#include <stdio.h>
#include <string.h>

/* ---- names for folders that were given without one ---- */

/* The last part of the path. */
static void base_name(const char *path, char name[XN_PROTO_MAX_NAME + 1]) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    snprintf(name, XN_PROTO_MAX_NAME + 1, "%.*s", (int)(end - start), path + start);
}

/* The name in the folder's configuration, or else the folder's own name; false if neither is valid.
 */
static bool find_name(const xn_model_source *source, char name[XN_PROTO_MAX_NAME + 1]) {
    const xn_model_location location = {NULL, source->folder};
    xn_model_folder folder;
    name[0] = '\0';
    if (xn_model_folder_open(&location, NULL, &folder, NULL) == XN_OK) {
        if (xn_model_own_name(&folder, name, NULL) != XN_OK)
            name[0] = '\0';
        xn_model_folder_close(&folder);
    }
    if (!xn_proto_name_valid(name))
        base_name(source->folder, name);
    return xn_proto_name_valid(name);
}

static bool is_taken(const xn_models *models, const xn_model_source *by, const char *name) {
    for (size_t i = 0; i < models->source_count; i++)
        if (&models->sources[i] != by && !strcmp(models->sources[i].name, name))
            return true;
    return false;
}

static xn_status no_name(const xn_model_source *source, const char *what, const char *name,
                         xn_error *error) {
    return xn_fail(error, XN_ERR_MALFORMED, "model",
                   "--model %.160s %s\"%.60s\"; give --model NAME=DIR", source->folder, what, name);
}

/* Only the scan changes names of sources, so it reads them without the lock. */
static xn_status name_source(xn_models *models, xn_model_source *source, xn_error *error) {
    char name[XN_PROTO_MAX_NAME + 1];
    xn_status status = XN_OK;
    if (source->named)
        return XN_OK;
    if (!find_name(source, name))
        status = no_name(source, "has no name that a model may have: ", name, error);
    else if (is_taken(models, source, name))
        status = no_name(source, "has the name of another one: ", name, error);
    pthread_mutex_lock(&models->mutex);
    snprintf(source->name, sizeof source->name, "%s", status == XN_OK ? name : "");
    pthread_mutex_unlock(&models->mutex);
    return status;
}

/* ---- collecting ---- */

typedef struct collecting {
    xn_models *models;
    size_t left_out; /* no room for them */
    xn_error error;  /* why the last was left out */
} collecting;

static void collect_name(collecting *c, const char *name) {
    xn_models *models = c->models;
    xn_model_entry *entry = NULL;
    pthread_mutex_lock(&models->mutex);
    if (xn_models_enter_locked(models, name, &entry, &c->error) == XN_OK) {
        entry->listed = true;
        entry->seen = models->scan;
        entry->pending = entry->pending || (!xn_model_serving_locked(entry) && !entry->tried);
        xn_models_leave_locked(models, entry);
    } else {
        c->left_out++;
    }
    pthread_mutex_unlock(&models->mutex);
}

static bool collect_folder(void *context, const char *name) {
    collecting *c = context;
    if (xn_proto_name_valid(name))
        collect_name(c, name);
    else
        xn_log(
            XN_LOG_WARN, NULL,
            "model-repository: \"%.100s\" is left out: a model's name has 1 to %d of A-Z a-z 0-9 "
            ". _ -",
            name, XN_PROTO_MAX_NAME);
    return !atomic_load(&c->models->stop);
}

static void collect_sources(collecting *c) {
    xn_models *models = c->models;
    for (size_t i = 0; i < models->source_count; i++) {
        xn_error why;
        xn_model_source *source = &models->sources[i];
        if (name_source(models, source, &why) == XN_OK) {
            collect_name(c, source->name);
            continue;
        }
        xn_log(XN_LOG_ERROR, NULL, "%s", why.message);
    }
}

static xn_status collect(collecting *c, xn_error *error) {
    c->left_out = 0;
    collect_sources(c);
    if (!c->models->repository)
        return XN_OK;
    return xn_model_repository_each(c->models->repository, collect_folder, c, error);
}

static void report_left_out(const collecting *c) {
    if (c->left_out)
        xn_log(XN_LOG_ERROR, NULL, "%zu models are left out: %s", c->left_out, c->error.message);
}

/* ---- loading ---- */

/* The first entry behind the name that the scan has found (or, with found false, has not); takes
 * one user. */
static xn_model_entry *next_entry(xn_models *models, const char *after, bool found) {
    xn_model_entry *next = NULL;
    pthread_mutex_lock(&models->mutex);
    for (size_t i = 0; i < models->entries.count && !next; i++) {
        xn_model_entry *entry = models->entries.items[i];
        bool seen = entry->seen == models->scan;
        if (strcmp(entry->name, after) > 0 && entry->listed && seen == found)
            next = entry;
    }
    if (next)
        next->users++;
    pthread_mutex_unlock(&models->mutex);
    return next;
}

static void load_found(xn_models *models) {
    char name[XN_PROTO_MAX_NAME + 1] = "";
    xn_model_entry *entry;
    while (!atomic_load(&models->stop) && (entry = next_entry(models, name, true))) {
        memcpy(name, entry->name, sizeof name);
        xn_models_load_entry(models, entry, NULL, XN_MODEL_LOAD_CHANGED, NULL);
        xn_models_leave(models, entry);
    }
}

static void unload_gone(xn_models *models) {
    char name[XN_PROTO_MAX_NAME + 1] = "";
    xn_model_entry *entry;
    while ((entry = next_entry(models, name, false))) {
        memcpy(name, entry->name, sizeof name);
        xn_models_unload_entry(models, entry, "its folder is gone");
        pthread_mutex_lock(&models->mutex);
        entry->listed = false;
        xn_model_forget_locked(entry);
        xn_models_leave_locked(models, entry);
        pthread_mutex_unlock(&models->mutex);
    }
}

/* Logs the result of a scan. */
static void report_served(xn_models *models) {
    size_t found = 0, served = 0, named = 0;
    pthread_mutex_lock(&models->mutex);
    for (size_t i = 0; i < models->entries.count; i++) {
        const xn_model_entry *entry = models->entries.items[i];
        const bool by_setting = is_taken(models, NULL, entry->name);
        found += entry->listed && !by_setting;
        served += entry->listed && !by_setting && xn_model_serving_locked(entry);
        named += by_setting && xn_model_serving_locked(entry);
    }
    pthread_mutex_unlock(&models->mutex);
    if (models->repository)
        xn_log(XN_LOG_INFO, NULL, "models: %zu of %zu in --model-repository %s are served", served,
               found, models->repository);
    if (models->source_count)
        xn_log(XN_LOG_INFO, NULL, "models: %zu of %zu given by --model are served", named,
               models->source_count);
}

static void next_scan(xn_models *models) {
    pthread_mutex_lock(&models->mutex);
    models->scan++;
    pthread_mutex_unlock(&models->mutex);
}

xn_status xn_models_scan(xn_models *models, xn_error *error) {
    xn_status status = XN_OK;
    collecting c = {.models = models};
    pthread_mutex_lock(&models->scanning);
    next_scan(models);
    status = collect(&c, error);
    if (status == XN_OK) /* else a model that was not seen may still be there */
        unload_gone(models);
    if (status == XN_OK && c.left_out) /* there may be room now */
        status = collect(&c, error);
    report_left_out(&c);
    load_found(models);
    report_served(models);
    pthread_mutex_lock(&models->mutex);
    models->scanned = true;
    pthread_mutex_unlock(&models->mutex);
    pthread_mutex_unlock(&models->scanning);
    return status;
}

/* ---- checking ---- */

static xn_status fail_named(const char *name, xn_status status, const char *why, xn_error *error) {
    return xn_fail(error, status, "model", "model \"%s\": %.220s", name, why);
}

static xn_status find_served(xn_models *models, xn_model_source *source, xn_error *error) {
    xn_status status = source->name[0] ? XN_OK : name_source(models, source, error);
    if (status != XN_OK)
        return status;
    pthread_mutex_lock(&models->mutex);
    const xn_model_entry *entry = xn_models_find_locked(models, source->name);
    if (!entry)
        status = fail_named(source->name, XN_ERR_LIMIT, "more models than --max-models", error);
    else if (entry->failed)
        status = fail_named(source->name, XN_ERR_LOADING, entry->reason, error);
    pthread_mutex_unlock(&models->mutex);
    return status;
}

xn_status xn_models_check_named(xn_models *models, xn_error *error) {
    xn_status status = XN_OK;
    pthread_mutex_lock(&models->scanning);
    for (size_t i = 0; i < models->source_count && status == XN_OK; i++)
        status = find_served(models, &models->sources[i], error);
    pthread_mutex_unlock(&models->scanning);
    return status;
}

typedef struct checking {
    const xn_models *models;
    xn_error error; /* of the first of --model that failed; its status is XN_OK while none has */
    size_t count;
    int64_t bytes;
} checking;

static xn_status count_bytes(checking *c, const xn_model_version *version, xn_error *error) {
    const int64_t more = (int64_t)version->host_bytes, most = c->models->limits.max_bytes;
    if (more > most - c->bytes)
        return xn_model_fail_bytes(more, c->bytes, most, error);
    c->bytes += more;
    return XN_OK;
}

static xn_status check_version(checking *c, const char *name, const xn_model_location *location,
                               const char *number, xn_error *error) {
    xn_model_version *version = NULL;
    xn_model_folder folder;
    xn_status status = xn_model_folder_open(location, number, &folder, error);
    if (status == XN_OK) {
        status = xn_model_version_read(name, &folder, NULL, &c->models->limits, &version, error);
        xn_model_folder_close(&folder);
    }
    if (status == XN_OK) {
        status = count_bytes(c, version, error);
        xn_model_release(&version->model);
    }
    return status;
}

/* A failure of a model that --model names stops the start; one of the repository is only logged. */
static void check_one(checking *c, const char *name, const xn_model_location *location) {
    xn_model_versions found = {0};
    xn_error why = {0};
    c->count++;
    xn_status status = xn_model_folder_versions(location, c->models->policy, &found, &why);
    for (int i = 0; i < found.count && status == XN_OK; i++)
        status = check_version(c, name, location, found.names[i], &why);
    if (status != XN_OK && !location->repository && c->error.status == XN_OK)
        fail_named(name, status, why.message, &c->error);
    else if (status != XN_OK)
        xn_log(XN_LOG_ERROR, NULL, "model \"%s\" cannot be loaded: %s", name, why.message);
}

static bool check_folder(void *context, const char *name) {
    checking *c = context;
    if (xn_proto_name_valid(name) && !is_taken(c->models, NULL, name))
        check_one(c, name, &(xn_model_location){c->models->repository, name});
    return true;
}

static xn_status check_count(const checking *c, xn_error *error) {
    const size_t count = c->count, most = c->models->max_models, named = c->models->source_count;
    if (named > most)
        return xn_fail_limit(error, "max-models", "model",
                             "there are %zu models; --max-models is %zu", named, most);
    if (count > most)
        xn_log(XN_LOG_ERROR, NULL,
               "%zu models are left out: there are %zu models; --max-models is %zu", count - most,
               count, most);
    return XN_OK;
}

static xn_status check_all(xn_models *models, checking *c, xn_error *error) {
    xn_status status = XN_OK;
    for (size_t i = 0; i < models->source_count && status == XN_OK; i++) {
        xn_model_source *source = &models->sources[i];
        status = name_source(models, source, error);
        if (status == XN_OK)
            check_one(c, source->name, &(xn_model_location){NULL, source->folder});
    }
    if (status == XN_OK && models->repository)
        status = xn_model_repository_each(models->repository, check_folder, c, error);
    return status == XN_OK ? check_count(c, error) : status;
}

xn_status xn_models_check(const xn_config *config, xn_error *error) {
    xn_models *models = NULL;
    xn_status status = xn_models_create(config, NULL, &models, error);
    if (status != XN_OK)
        return status;
    checking c = {.models = models};
    status = check_all(models, &c, error);
    xn_models_free(models);
    if (status == XN_OK && c.error.status != XN_OK) {
        status = c.error.status;
        if (error)
            *error = c.error;
    }
    return status;
}
