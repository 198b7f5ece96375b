/* oip.c: see oip.h. */
#include "oip.h"

#include "nw_write.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- networks ---- */

enum { CHANNELS = 8, CLASSES = 10, HEIGHT = 6, WIDTH = 5 };

static xn_layer *convolve(nw_net *net, xn_rng *rng, const char *name, xn_mode mode, int64_t in) {
    xn_layer *layer = nw_add(net, XN_OP_CONV, name, NULL);
    layer->weight = nw_random(net, rng, true, CHANNELS, in, 3, 3);
    layer->window.mode = mode;
    layer->window.padding[0] = layer->window.padding[1] = 1;
    layer->window.padding[2] = layer->window.padding[3] = 1;
    return layer;
}

static void add_layers(nw_net *net, xn_rng *rng) {
    convolve(net, rng, "stem", XN_MODE_FLOAT, 3);
    nw_add(net, XN_OP_AFFINE, "norm", NULL)->scale = nw_random_scale(net, rng, true, CHANNELS);
    convolve(net, rng, "body", XN_MODE_XNOR, CHANNELS)->bias =
        nw_random(net, rng, true, CHANNELS, 0, 0, 0);
    nw_add(net, XN_OP_ADD, "sum", "body norm");
    xn_layer *pool = nw_add(net, XN_OP_MAX_POOL, "pool", NULL);
    pool->global = true;
    nw_add(net, XN_OP_FLATTEN, "flat", NULL);
    xn_layer *dense = nw_add(net, XN_OP_CONV, "dense", NULL);
    dense->weight = nw_random(net, rng, true, CLASSES, CHANNELS, 0, 0);
    dense->window.mode = XN_MODE_FLOAT;
}

void xt_net_make(xt_net *net, xt_net_kind kind, uint64_t seed) {
    xn_rng rng = {seed};
    *net = (xt_net){.kind = kind, .net = nw_create(3, HEIGHT, WIDTH), .datatype = "FP32"};
    add_layers(net->net, &rng);
    net->elements = 3 * HEIGHT * WIDTH;
    net->image_bytes = (size_t)net->elements * sizeof(float);
    if (kind == XT_NET_BYTES) {
        net->datatype = "UINT8";
        net->image_bytes = (size_t)net->elements;
        net->net->params.input_datatype = XN_UINT8;
        net->net->params.input_layout = XN_IMAGE_NHWC;
        net->net->params.input_shape = (xn_shape){3, {HEIGHT, WIDTH, 3}};
        nw_output(net->net, "sum");
        nw_output(net->net, "dense");
    }
    net->network = nw_lower(net->net);
}

void xt_net_free(xt_net *net) {
    xn_network_free(net->network);
    nw_free(net->net);
}

static void write_text(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_msg(file && fputs(text, file) >= 0 && !fclose(file), "%s cannot be written", path);
}

/* What nw_write leaves out: what a server asks of a configuration. */
static void write_config(const xt_net *net, const char *folder, const nw_files *files) {
    xt_buffer text = {0};
    const char *rest = strchr(files->config, '{') + 1;
    xt_print(&text, "{\"max_batch_size\": %d, ", XT_NET_MAX_BATCH);
    if (net->kind == XT_NET_PLAIN)
        xt_print(&text, "\"output\": {\"name\": \"logits\", \"labels\": \"classes.txt\"}, ");
    xt_print(&text, "%s", rest);
    write_text(folder, "config.json", text.data);
    xt_buffer_free(&text);
}

void xt_net_write(const xt_net *net, const char *repository, const char *name) {
    char folder[400];
    nw_files files;
    snprintf(folder, sizeof folder, "%s/%s", repository, name);
    ck_assert_msg(!mkdir(folder, 0755), "%s cannot be made", folder);
    nw_write_folder(net->net, NULL, folder);
    nw_write(net->net, NULL, &files);
    write_config(net, folder, &files);
    nw_files_free(&files);
    if (net->kind == XT_NET_PLAIN)
        write_text(folder, "classes.txt",
                   "zero\none\ntwo\nthree\n\nfive\nsix \"6\"\nseven\neight\nn\xc3\xa4un\n");
}

void *xt_net_images(const xt_net *net, xn_rng *rng, int64_t images) {
    const int64_t count = net->elements * images;
    unsigned char *bytes = malloc(net->image_bytes * (size_t)images);
    ck_assert_ptr_nonnull(bytes);
    for (int64_t i = 0; i < count; i++) {
        float value = (float)((int)xn_rng_below(rng, 33) - 16) * 0.25f;
        if (net->kind == XT_NET_BYTES)
            bytes[i] = (unsigned char)xn_rng_below(rng, 256);
        else
            memcpy(bytes + 4 * i, &value, 4);
    }
    return bytes;
}

float *xt_net_expect(const xt_net *net, const void *images, int64_t count) {
    return nw_run(net->network, images, count);
}

void xt_folder_make(char *path, size_t size) {
    const char *temporary = getenv("TMPDIR");
    snprintf(path, size, "%s/xnord-models-XXXXXX", temporary ? temporary : "/tmp");
    ck_assert_msg(mkdtemp(path) != NULL, "%s cannot be made", path);
}

/* Two levels are all that repositories of tests have, versions one more. */
void xt_folder_remove(const char *path) {
    DIR *folder = opendir(path);
    char inside[600];
    if (!folder) {
        unlink(path);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        xt_folder_remove(inside);
    }
    closedir(folder);
    rmdir(path);
}

const char *const xt_net_names[XT_NETS] = {"plain", "bytes"};

void xt_nets_make(xt_net nets[XT_NETS], char *repository, size_t size) {
    xt_folder_make(repository, size);
    for (int i = 0; i < XT_NETS; i++) {
        xt_net_make(&nets[i], (xt_net_kind)i, xn_test_seed() + (uint64_t)i);
        xt_net_write(&nets[i], repository, xt_net_names[i]);
    }
}

void xt_nets_free(xt_net nets[XT_NETS], const char *repository) {
    for (int i = 0; i < XT_NETS; i++)
        xt_net_free(&nets[i]);
    xt_folder_remove(repository);
}

/* ---- requests ---- */

static void append_numbers(xt_buffer *body, const xt_net *net, const void *images, int64_t first,
                           int64_t count) {
    for (int64_t i = first; i < first + count; i++) {
        float value = 0;
        if (net->kind == XT_NET_BYTES)
            value = ((const unsigned char *)images)[i];
        else
            memcpy(&value, (const unsigned char *)images + 4 * i, 4);
        xt_print(body, "%s%.9g", i > first ? "," : "", (double)value);
    }
}

/* Nested as the shape is; all networks here have images of rank 3. */
static void append_nested(xt_buffer *body, const xt_net *net, const void *images, int64_t count) {
    const int64_t *d = net->net->params.input_shape.dims;
    const int64_t sizes[4] = {count * d[0] * d[1] * d[2], d[0] * d[1] * d[2], d[1] * d[2], d[2]};
    for (int64_t at = 0; at < sizes[0]; at += sizes[3]) {
        xt_print(body, "%s", at ? "," : "");
        for (int level = 0; level < 4; level++)
            if (at % sizes[level] == 0)
                xt_print(body, "[");
        append_numbers(body, net, images, at, sizes[3]);
        for (int level = 3; level >= 0; level--)
            if ((at + sizes[3]) % sizes[level] == 0)
                xt_print(body, "]");
    }
}

static void append_data(const xt_infer *how, xt_buffer *body, const xt_net *net, const void *images,
                        int64_t count) {
    if (how->in == XT_IN_BINARY) {
        xt_print(body, "\"parameters\": {\"binary_data_size\": %zu}",
                 net->image_bytes * (size_t)count);
        return;
    }
    xt_print(body, "\"data\": %s", how->in == XT_IN_JSON ? "[" : "");
    if (how->in == XT_IN_JSON)
        append_numbers(body, net, images, 0, net->elements * count);
    else
        append_nested(body, net, images, count);
    xt_print(body, "%s", how->in == XT_IN_JSON ? "]" : "");
}

void xt_infer_body(xt_infer *how, const xt_net *net, const void *images, int64_t count,
                   xt_buffer *body) {
    const int64_t *d = net->net->params.input_shape.dims;
    *body = (xt_buffer){0};
    how->header_length = 0;
    if (how->in != XT_IN_RAW) {
        xt_print(body, "{");
        if (how->id)
            xt_print(body, "\"id\": \"%s\", ", how->id);
        xt_print(body,
                 "\"inputs\": [{\"name\": \"%s\", \"shape\": ", how->name ? how->name : "input");
        if (how->shape)
            xt_print(body, "%s", how->shape);
        else
            xt_print(body, "[%lld, %lld, %lld, %lld]", (long long)count, (long long)d[0],
                     (long long)d[1], (long long)d[2]);
        xt_print(body, ", \"datatype\": \"%s\", ", how->datatype ? how->datatype : net->datatype);
        append_data(how, body, net, images, count);
        xt_print(body, "}]%s}", how->rest ? how->rest : "");
        how->header_length = body->length;
    }
    if (how->in == XT_IN_BINARY || how->in == XT_IN_RAW)
        xt_append(body, images, net->image_bytes * (size_t)count);
}

xt_result xt_infer_send(xt_conn *conn, const char *model, const xt_infer *how,
                        const xt_buffer *body, xt_response *response) {
    char target[300], headers[600];
    bool has_header = how->in == XT_IN_BINARY || how->in == XT_IN_RAW;
    int n = snprintf(headers, sizeof headers, "%s", how->headers ? how->headers : "");
    if (has_header)
        snprintf(headers + n, sizeof headers - (size_t)n,
                 "Inference-Header-Content-Length: %zu\r\n", how->header_length);
    snprintf(target, sizeof target, "/v2/models/%s/infer", model);
    return xt_request(conn, "POST", target, headers, body->data ? body->data : "", body->length,
                      response);
}

void xt_ask(const xt_daemon *daemon, const char *model, xt_infer *how, const xt_net *net,
            const void *images, int64_t count, xt_response *response) {
    xt_buffer body;
    xt_conn conn;
    xt_infer_body(how, net, images, count, &body);
    ck_assert(xt_connect(&conn, daemon));
    xt_result result = xt_infer_send(&conn, model, how, &body, response);
    ck_assert_msg(result == XT_GOT, "infer of %s: got %s", model, xt_result_name(result));
    xt_disconnect(&conn);
    xt_buffer_free(&body);
}

/* ---- answers ---- */

static size_t header_length_of(const xt_response *response) {
    const char *text = XT_HEADER(response, "Inference-Header-Content-Length");
    return text ? strtoul(text, NULL, 10) : response->length;
}

static double number_at(const char *json, int index, const char *member) {
    char path[96];
    snprintf(path, sizeof path, "outputs.%d.%s", index, member);
    return xt_json_number(json, path);
}

static void copy_string(const char *json, int index, const char *member, char *out, size_t size) {
    char path[96];
    snprintf(path, sizeof path, "outputs.%d.%s", index, member);
    char *text = xt_json_string(json, path);
    ck_assert_msg(text && strlen(text) < size, "no %s in %s", path, json);
    strcpy(out, text);
    free(text);
}

static size_t binary_size(const char *json, int index) {
    double size = number_at(json, index, "parameters.binary_data_size");
    return isnan(size) ? 0 : (size_t)size;
}

static void read_values(const xt_response *response, const char *json, int index, xt_output *out) {
    size_t at = header_length_of(response);
    for (int i = 0; i < index; i++)
        at += binary_size(json, i);
    ck_assert_uint_le(at + out->bytes, response->length);
    out->values = malloc(out->bytes + 1);
    ck_assert_ptr_nonnull(out->values);
    memcpy(out->values, response->body + at, out->bytes);
}

static void read_numbers(const char *at, xt_output *out) {
    int64_t count = 1;
    for (int i = 0; i < out->rank; i++)
        count *= out->shape[i];
    out->bytes = (size_t)count * sizeof(float);
    out->values = malloc(out->bytes + 1);
    ck_assert_ptr_nonnull(out->values);
    for (int64_t i = 0; i < count; i++) {
        char *end;
        float value = strtof(at + 1, &end);
        ck_assert_msg(end > at + 1 && *end == (i + 1 < count ? ',' : ']'), "value %d: %.40s",
                      (int)i, at);
        memcpy(out->values + 4 * i, &value, 4);
        at = end;
    }
}

void xt_output_read(const xt_response *response, int index, xt_output *out) {
    char *json = strndup(response->body, header_length_of(response));
    char path[64];
    ck_assert_msg(json && xt_json_valid(json), "%s", json);
    *out = (xt_output){.bytes = 0};
    copy_string(json, index, "name", out->name, sizeof out->name);
    copy_string(json, index, "datatype", out->datatype, sizeof out->datatype);
    for (double d; out->rank < 8; out->rank++) {
        snprintf(path, sizeof path, "shape.%d", out->rank);
        if (isnan(d = number_at(json, index, path)))
            break;
        out->shape[out->rank] = (int64_t)d;
    }
    snprintf(path, sizeof path, "outputs.%d.data", index);
    const char *data = xt_json_at(json, path);
    out->bytes = binary_size(json, index);
    out->binary = !data;
    if (!data)
        read_values(response, json, index, out);
    else if (strcmp(out->datatype, "BYTES") != 0)
        read_numbers(data, out);
    else
        out->text = response->body + (data - json);
    free(json);
}

void xt_output_free(xt_output *output) {
    free(output->values);
}

void xt_check_output(const xt_response *response, int index, const char *name,
                     const float *expected, int64_t images, int64_t image_elements, int64_t from,
                     int64_t to) {
    xt_output out;
    ck_assert_msg(response->status == 200, "%d: %s", response->status, response->body);
    xt_output_read(response, index, &out);
    ck_assert_str_eq(out.name, name);
    ck_assert_str_eq(out.datatype, "FP32");
    ck_assert_int_eq(out.shape[0], images);
    ck_assert_uint_eq(out.bytes, (size_t)(images * (to - from)) * sizeof(float));
    for (int64_t i = 0; i < images; i++)
        ck_assert_msg(!memcmp(out.values + (size_t)(i * (to - from)) * 4,
                              expected + i * image_elements + from, (size_t)(to - from) * 4),
                      "image %d of %s differs, seed %llu", (int)i, name,
                      (unsigned long long)xn_test_seed());
    xt_output_free(&out);
}

void xt_check_oip_error(const xt_response *response, int status, const char *part,
                        const char *what) {
    const char *body = response->body ? response->body : "";
    const char *type = XT_HEADER(response, "Content-Type");
    ck_assert_msg(response->status == status, "%s: status %d, expected %d: %s", what,
                  response->status, status, body);
    ck_assert_msg(type && !strncmp(type, "application/json", 16), "%s: Content-Type %s", what,
                  type ? type : "missing");
    ck_assert_msg(xt_json_valid(body), "%s: not JSON: %s", what, body);
    char *message = xt_json_string(body, "error");
    ck_assert_msg(message && *message, "%s: no text: %s", what, body);
    ck_assert_msg(!part || strstr(message, part), "%s: lacks '%s': %s", what, part, body);
    free(message);
}
