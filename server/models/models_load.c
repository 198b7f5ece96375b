/* models_load.c: a version of a model, made of the files in its folder: read, checked, lowered. The
 * small files come first, so that what they refuse costs no reading of the large one. */
#include "models_internal.h"
#include "xn_program.h"

#include <stdio.h>
#include <string.h>

/* ---- files, from the request or the folder ---- */

/* One load of a version, in flight. */
typedef struct version_load {
    const xn_model_folder *folder;
    const xn_model_overrides *overrides;
    const xn_model_limits *limits;
    xn_model_version *version;
    xn_model_bytes config, tensors;
    int64_t bytes; /* read so far */
} version_load;

/* "3/name" and "name" are the file `name` of version 3. */
static bool path_is(const char *path, const char *version, const char *file) {
    size_t length = strlen(version);
    if (!strncmp(path, version, length) && path[length] == '/')
        path += length + 1;
    return !strcmp(path, file);
}

static const xn_model_file *find_override(const version_load *m, const char *file) {
    for (int i = 0; m->overrides && i < m->overrides->file_count; i++)
        if (path_is(m->overrides->files[i].path, m->version->version, file))
            return &m->overrides->files[i];
    return NULL;
}

static xn_status copy_override(const void *bytes, size_t length, const xn_model_read *what,
                               xn_model_bytes *out, xn_error *error) {
    xn_status status = xn_model_check_size(what, length, error);
    if (status != XN_OK)
        return status;
    void *own = xn_mem_alloc(length);
    if (!own)
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for the %zu bytes of %.130s",
                       length, what->file);
    memcpy(own, bytes, length);
    *out = (xn_model_bytes){own, length, xn_model_free_copy};
    return XN_OK;
}

/* `most` without a limit's name is the format's own bound. */
static xn_status read_file(version_load *m, const char *file, int64_t most, const char *limit,
                           xn_model_bytes *out, xn_error *error) {
    const bool map = !strcmp(file, XN_MODEL_TENSORS_FILE);
    const xn_model_read what = {file, most, limit, m->limits->stop, map};
    const xn_model_file *overrides = find_override(m, file);
    const bool text = m->overrides && m->overrides->config && !strcmp(file, XN_MODEL_CONFIG_FILE);
    xn_status status;
    *out = (xn_model_bytes){0};
    if (text)
        status =
            copy_override(m->overrides->config, m->overrides->config_length, &what, out, error);
    else if (overrides)
        status = copy_override(overrides->bytes, overrides->length, &what, out, error);
    else if (m->folder->fd >= 0)
        status = xn_model_folder_read(m->folder, &what, out, error);
    else
        status = xn_fail(error, XN_ERR_MALFORMED, "model",
                         "there is no %.130s: the request does not have it, and the model has no "
                         "folder",
                         file);
    if (status == XN_OK)
        m->bytes += (int64_t)out->length;
    return status;
}

/* Puts the file's name in front of what is wrong in it. */
static xn_status within(const char *file, const xn_error *why, xn_error *error) {
    if (error) {
        *error = *why;
        snprintf(error->message, sizeof error->message, "%.130s: %.220s", file, why->message);
    }
    return why->status;
}

/* ---- the version's own ---- */

static void take_version(version_load *m, const char *name) {
    xn_model_version *v = m->version;
    snprintf(v->name, sizeof v->name, "%s", name);
    memcpy(v->version, m->folder->version, sizeof v->version);
}

static bool is_used(const version_load *m, const char *path) {
    const char *version = m->version->version;
    xn_model_about about;
    xn_model_config_about(m->version->config, &about);
    bool used = path_is(path, version, XN_MODEL_TENSORS_FILE) ||
                (!m->overrides->config && path_is(path, version, XN_MODEL_CONFIG_FILE));
    for (int i = 0; !used && i < about.output_count; i++)
        used = about.outputs[i].labels && path_is(path, version, about.outputs[i].labels);
    return used;
}

static xn_status check_all_used(const version_load *m, xn_error *error) {
    for (int i = 0; m->overrides && i < m->overrides->file_count; i++)
        if (!is_used(m, m->overrides->files[i].path))
            return xn_fail(error, XN_ERR_MALFORMED, "parameters",
                           "the model has no use for a file \"%.100s\"; it takes %s, %s and the "
                           "labels that %s names",
                           m->overrides->files[i].path, XN_MODEL_CONFIG_FILE, XN_MODEL_TENSORS_FILE,
                           XN_MODEL_CONFIG_FILE);
    return XN_OK;
}

static int64_t elements_of(const xn_shape *shape) {
    int64_t elements = 1; /* a validated graph's: they fit */
    for (int i = 0; i < shape->rank; i++)
        elements *= shape->dims[i];
    return elements;
}

static void describe_end(const xn_graph_end *end, const char *name, xn_model_end *out) {
    out->name = name;
    out->datatype = end->datatype;
    out->shape = end->shape;
    out->elements = elements_of(&end->shape);
}

static xn_status describe(version_load *m, const xn_graph *graph, xn_error *error) {
    xn_model_version *v = m->version;
    xn_model_about about;
    xn_graph_end end;
    xn_model_config_about(v->config, &about);
    v->outputs = xn_mem_zalloc((size_t)about.output_count, sizeof *v->outputs);
    v->labels = xn_mem_zalloc((size_t)about.output_count, sizeof *v->labels);
    if (!v->outputs || !v->labels)
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for %d outputs",
                       about.output_count);
    xn_graph_input(graph, &end);
    describe_end(&end, about.input_name, &v->model.input);
    for (int i = 0; i < about.output_count; i++) {
        xn_graph_output(graph, i, &end);
        describe_end(&end, about.outputs[i].name, &v->outputs[i]);
        v->outputs[i].classes = end.classes;
    }
    v->model.name = v->name;
    v->model.version = v->version;
    v->model.max_batch_size = about.max_batch_size;
    v->model.input_layout = about.input_layout;
    v->model.packed_channels = about.packed_channels;
    v->model.picture = about.picture;
    v->model.output_count = about.output_count;
    v->model.outputs = v->outputs;
    v->model.precision = about.precision;
    v->layer_count = about.layer_count;
    return XN_OK;
}

static xn_status read_labels(version_load *m, const char *file, int output, xn_error *error) {
    xn_model_end *end = &m->version->outputs[output];
    xn_model_labels *labels = &m->version->labels[output];
    xn_model_bytes text;
    xn_error why;
    const int64_t left = m->limits->max_bytes - m->bytes;
    const bool short_of = left < XN_MODEL_LABELS_BYTES;
    xn_status status = read_file(m, file, short_of ? (left > 0 ? left : 0) : XN_MODEL_LABELS_BYTES,
                                 short_of ? "max-models-bytes" : NULL, &text, error);
    if (status != XN_OK)
        return status;
    status = xn_model_labels_parse(text.bytes, text.length, end->classes, &labels->labels,
                                   &end->label_count, &labels->memory, &why);
    xn_model_bytes_free(&text);
    if (status != XN_OK)
        return within(file, &why, error);
    end->labels = (const char *const *)labels->labels;
    for (int64_t i = 0; i < end->label_count; i++) {
        const size_t length = end->labels[i] ? strlen(end->labels[i]) : 0;
        end->longest_label = length > end->longest_label ? length : end->longest_label;
    }
    end->labels_file = file; /* the configuration's, which stays with the version */
    return XN_OK;
}

static xn_status read_all_labels(version_load *m, xn_error *error) {
    xn_model_about about;
    xn_status status = XN_OK;
    xn_model_config_about(m->version->config, &about);
    for (int i = 0; i < about.output_count && status == XN_OK; i++)
        if (about.outputs[i].labels)
            status = read_labels(m, about.outputs[i].labels, i, error);
    return status;
}

/* ---- from files to a network ---- */

static xn_status read_config(version_load *m, xn_error *error) {
    xn_error why;
    xn_status status =
        read_file(m, XN_MODEL_CONFIG_FILE, XN_MODEL_CONFIG_BYTES, NULL, &m->config, error);
    if (status != XN_OK)
        return status;
    status = xn_model_config_parse(m->config.bytes, m->config.length, &m->version->config, &why);
    return status == XN_OK ? check_all_used(m, error) : within(XN_MODEL_CONFIG_FILE, &why, error);
}

static xn_status read_tensors(version_load *m, xn_error *error) {
    int64_t most;
    if (__builtin_add_overflow(m->limits->max_bytes, XN_MODEL_HEADER_BYTES, &most))
        most = INT64_MAX;
    return read_file(m, XN_MODEL_TENSORS_FILE, most, "max-models-bytes", &m->tensors, error);
}

/* What an image takes while it is computed says little of the files' size. */
static xn_status check_image(const version_load *m, const xn_graph *graph, xn_error *error) {
    const xn_network *network = m->version->network;
    const char *layer = xn_graph_largest_layer(graph);
    const int64_t most = m->limits->image_bytes;
    size_t bytes;
    xn_shape shape;
    xn_status status = xn_program_image_bytes(xn_backend_all(), network->steps, network->step_count,
                                              &bytes, error);
    if (status != XN_OK || bytes <= (size_t)most)
        return status;
    xn_graph_layer_shape(graph, layer, &shape);
    return xn_fail_limit(error, "max-image-bytes", "model",
                         "one image takes %zu bytes between the layers of the model, whose largest "
                         "is \"%.60s\", %lld x %lld x %lld; --max-image-bytes allows %lld",
                         bytes, layer, (long long)shape.dims[0], (long long)shape.dims[1],
                         (long long)shape.dims[2], (long long)most);
}

/* A network whose weights point into the mapped file has taken it. */
static xn_status lower(version_load *m, const xn_graph *graph, xn_error *error) {
    xn_model_version *v = m->version;
    const bool mapped = m->tensors.release != xn_model_free_copy;
    xn_status status =
        xn_network_lower_in_place(graph, mapped ? &m->tensors : NULL, &v->network, error);
    if (status == XN_OK && v->network->tensors.bytes) {
        v->mapped_bytes = m->tensors.length;
        m->tensors = (xn_model_bytes){0};
    }
    return status;
}

static xn_status make_network(version_load *m, xn_error *error) {
    xn_model_version *v = m->version;
    xn_graph *graph = NULL;
    void *copies = NULL;
    xn_error why;
    xn_status status = xn_model_config_graph(v->config, m->tensors.bytes, m->tensors.length,
                                             &m->limits->of_image, &graph, &copies, &why);
    if (status == XN_OK)
        status = lower(m, graph, &why);
    if (status == XN_OK)
        status = check_image(m, graph, &why);
    if (status != XN_OK && error)
        *error = why;
    if (status == XN_OK) {
        v->step_count = v->network->step_count;
        status = describe(m, graph, error);
    }
    xn_graph_free(graph);
    xn_mem_free(copies);
    return status;
}

static xn_status run_load(version_load *m, xn_error *error) {
    xn_status status = read_config(m, error);
    if (status == XN_OK)
        status = read_tensors(m, error);
    if (status == XN_OK)
        status = make_network(m, error);
    xn_model_bytes_free(&m->tensors);
    xn_model_bytes_free(&m->config);
    return status == XN_OK ? read_all_labels(m, error) : status;
}

xn_status xn_model_version_read(const char *name, const xn_model_folder *folder,
                                const xn_model_overrides *overrides, const xn_model_limits *limits,
                                xn_model_version **out, xn_error *error) {
    const int64_t before = xn_mem_held();
    xn_model_version *version = xn_mem_zalloc(1, sizeof *version);
    if (!version)
        return xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for a model");
    version_load m = {
        .folder = folder, .overrides = overrides, .limits = limits, .version = version};
    atomic_init(&version->references, 1);
    take_version(&m, name);
    version->model.counters = xn_model_counters_create();
    xn_status status = version->model.counters
                           ? run_load(&m, error)
                           : xn_fail(error, XN_ERR_NO_MEMORY, "model", "no memory for a model");
    if (status != XN_OK) {
        xn_model_release(&version->model);
        return status;
    }
    version->host_bytes = (size_t)(xn_mem_held() - before) + version->mapped_bytes;
    *out = version;
    return XN_OK;
}

xn_status xn_model_own_name(const xn_model_folder *folder, char name[XN_PROTO_MAX_NAME + 1],
                            xn_error *error) {
    static const atomic_bool go_on = false;
    const xn_model_read what = {XN_MODEL_CONFIG_FILE, XN_MODEL_CONFIG_BYTES, NULL, &go_on, false};
    xn_model_config *config = NULL;
    xn_model_bytes text;
    xn_model_about about;
    xn_status status = xn_model_folder_read(folder, &what, &text, error);
    if (status != XN_OK)
        return status;
    status = xn_model_config_parse(text.bytes, text.length, &config, error);
    xn_model_bytes_free(&text);
    if (status != XN_OK)
        return status;
    xn_model_config_about(config, &about);
    snprintf(name, XN_PROTO_MAX_NAME + 1, "%s", about.name);
    xn_model_config_free(config);
    return XN_OK;
}

/* ---- references ---- */

static void version_free(xn_model_version *version) {
    xn_asset_release(version->model.asset);
    xn_network_free(version->network);
    for (int i = 0; version->labels && i < version->model.output_count; i++) {
        xn_mem_free(version->labels[i].labels);
        xn_mem_free(version->labels[i].memory);
    }
    xn_mem_free(version->labels);
    xn_mem_free(version->outputs);
    xn_model_config_free(version->config);
    xn_model_counters_release(version->model.counters);
    xn_mem_free(version);
}

/* A model is the first part of its version, and immutable but for the count. */
static xn_model_version *version_of(const xn_model *model) {
    return (xn_model_version *)model;
}

void xn_model_retain(const xn_model *model) {
    atomic_fetch_add_explicit(&version_of(model)->references, 1, memory_order_relaxed);
}

void xn_model_release(const xn_model *model) {
    if (!model)
        return;
    xn_model_version *version = version_of(model);
    if (atomic_fetch_sub_explicit(&version->references, 1, memory_order_acq_rel) == 1)
        version_free(version);
}
