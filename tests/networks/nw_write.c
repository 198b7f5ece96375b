#include "nw_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 5 };
static const char *const part_names[PARTS] = {"weight", "scale", "bias", "slope", "shift"};

/* How a tensor is stored. */
typedef enum { AS_F32, AS_F16, AS_BF16, AS_I8, AS_PACKED, WAYS } way;
static const char *const dtypes[WAYS] = {"F32", "F16", "BF16", "I8", "U8"};

typedef struct stored {
    const xn_layer *layer;
    int part;
    const xn_tensor *tensor;
    way how;
    xn_shape shape; /* in the file */
    size_t bytes, begin;
} stored;

typedef struct writer {
    xn_rng *rng;
    FILE *text;
    stored tensors[NW_TENSORS];
    int count;
    const char *separator; /* before the next member */
} writer;

static bool chance(const writer *w) {
    return w->rng && xn_rng_below(w->rng, 2);
}

/* ---- tensors ---- */

static const float *values_of(const xn_tensor *tensor) {
    ck_assert_int_eq(tensor->datatype, XN_FP32);
    return tensor->data;
}

static bool holds(float v, way how) {
    switch (how) {
    case AS_F16:
        return xn_fp16_to_fp32(xn_fp32_to_fp16(v)) == v;
    case AS_BF16:
        return xn_bf16_to_fp32(xn_fp32_to_bf16(v)) == v;
    case AS_I8:
        return v == rintf(v) && fabsf(v) < 128 && !(v == 0 && signbit(v));
    case AS_PACKED:
        return fabsf(v) == 1;
    default:
        return true;
    }
}

/* Only the signs of this one matter. */
static bool is_signs(const stored *s) {
    return s->layer->op == XN_OP_CONV && s->part == 0 && s->layer->window.mode != XN_MODE_FLOAT;
}

static bool may_be(const stored *s, way how) {
    if (how == AS_PACKED && (s->layer->op != XN_OP_CONV || s->part != 0))
        return false;
    if (is_signs(s) && (how == AS_I8 || how == AS_PACKED))
        return true;
    for (int64_t i = 0; i < s->tensor->elements; i++)
        if (!holds(values_of(s->tensor)[i], how))
            return false;
    return true;
}

static void choose(writer *w, stored *s) {
    const xn_shape *shape = &s->tensor->shape;
    for (int tries = 0; w->rng && tries < 8; tries++) {
        s->how = (way)xn_rng_below(w->rng, WAYS);
        if (may_be(s, s->how))
            break;
        s->how = AS_F32;
    }
    s->shape = *shape;
    if (s->how == AS_PACKED) {
        const int64_t *d = shape->dims, bytes = xn_bits_pixel_bytes(d[1]);
        s->shape = shape->rank == 4 ? (xn_shape){4, {d[0], d[2], d[3], bytes}}
                                    : (xn_shape){2, {d[0], bytes}};
    }
    static const size_t sizes[WAYS] = {4, 2, 2, 1, 1};
    s->bytes = sizes[s->how];
    for (int i = 0; i < s->shape.rank; i++)
        s->bytes *= (size_t)s->shape.dims[i];
}

static void pack(const xn_tensor *tensor, uint8_t *to) {
    const float *values = values_of(tensor);
    const int64_t *d = tensor->shape.dims;
    const int64_t taps = tensor->shape.rank == 4 ? d[2] * d[3] : 1;
    for (int64_t o = 0; o < d[0]; o++)
        for (int64_t tap = 0; tap < taps; tap++, to += xn_bits_pixel_bytes(d[1]))
            for (int64_t c = 0; c < d[1]; c++)
                if (values[(o * d[1] + c) * taps + tap] >= 0)
                    to[c / 8] |= (uint8_t)(1u << (c % 8));
}

/* A sign is any number that has it. */
static int8_t as_integer(const writer *w, const stored *s, float v) {
    if (!is_signs(s))
        return (int8_t)v;
    const int magnitude = w->rng ? (int)xn_rng_below(w->rng, 128) : 1;
    return (int8_t)(v >= 0 ? magnitude : -1 - magnitude);
}

static void store(const writer *w, const stored *s, uint8_t *to) {
    const float *values = values_of(s->tensor);
    if (s->how == AS_PACKED) {
        pack(s->tensor, to);
        return;
    }
    for (int64_t i = 0; i < s->tensor->elements; i++) {
        const uint16_t half = xn_fp32_to_fp16(values[i]), brain = xn_fp32_to_bf16(values[i]);
        if (s->how == AS_F32)
            memcpy(to + 4 * i, &values[i], 4);
        else if (s->how == AS_I8)
            to[i] = (uint8_t)as_integer(w, s, values[i]);
        else
            memcpy(to + 2 * i, s->how == AS_F16 ? &half : &brain, 2);
    }
}

static void collect(writer *w, const nw_net *net) {
    for (int i = 0; i < net->params.layer_count; i++) {
        const xn_layer *l = &net->layers[i];
        const xn_tensor *const parts[PARTS] = {l->weight, l->scale, l->bias, l->slope, l->shift};
        for (int p = 0; p < PARTS; p++) {
            if (!parts[p])
                continue;
            ck_assert_int_lt(w->count, NW_TENSORS);
            w->tensors[w->count] = (stored){.layer = l, .part = p, .tensor = parts[p]};
            choose(w, &w->tensors[w->count++]);
        }
    }
}

static void shuffle(writer *w) {
    for (int i = w->count - 1; i > 0 && w->rng; i--) {
        const int j = (int)xn_rng_below(w->rng, (uint64_t)i + 1);
        const stored other = w->tensors[j];
        w->tensors[j] = w->tensors[i];
        w->tensors[i] = other;
    }
}

static size_t place(writer *w) {
    size_t at = 0;
    for (int i = 0; i < w->count; i++) {
        w->tensors[i].begin = at;
        at += w->tensors[i].bytes;
    }
    return at;
}

static void write_header(writer *w, char **text, size_t *length) {
    w->text = open_memstream(text, length);
    ck_assert_ptr_nonnull(w->text);
    fprintf(w->text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < w->count; i++) {
        const stored *s = &w->tensors[i];
        fprintf(w->text, ",\"%s.%s\":{\"dtype\":\"%s\",\"shape\":[", s->layer->name,
                part_names[s->part], dtypes[s->how]);
        for (int d = 0; d < s->shape.rank; d++)
            fprintf(w->text, "%s%lld", d ? "," : "", (long long)s->shape.dims[d]);
        fprintf(w->text, "],\"data_offsets\":[%zu,%zu]}", s->begin, s->begin + s->bytes);
    }
    fprintf(w->text, "}");
    fflush(w->text);
    for (size_t left = w->rng ? xn_rng_below(w->rng, 9) : -*length % 8; left; left--)
        fputc(' ', w->text);
    ck_assert_int_eq(fclose(w->text), 0);
}

static void write_tensors(writer *w, nw_files *out) {
    char *header;
    size_t header_length;
    shuffle(w);
    const size_t values = place(w);
    shuffle(w); /* the header need not have their order */
    write_header(w, &header, &header_length);
    out->tensors_length = 8 + header_length + values;
    out->tensors = aligned_alloc(64, (out->tensors_length + 63) / 64 * 64);
    ck_assert_ptr_nonnull(out->tensors);
    uint8_t *at = memset(out->tensors, 0, out->tensors_length);
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)((uint64_t)header_length >> (8 * i));
    memcpy(at + 8, header, header_length);
    for (int i = 0; i < w->count; i++)
        store(w, &w->tensors[i], at + 8 + header_length + w->tensors[i].begin);
    free(header);
}

/* ---- the configuration ---- */

static void begin_member(writer *w, const char *name) {
    fprintf(w->text, "%s\"%s\": ", w->separator, name);
    w->separator = ", ";
}

/* Only now and then where it is what it would be without it. */
static bool begin_default(writer *w, const char *name, bool is_default) {
    if (is_default && chance(w))
        return false;
    begin_member(w, name);
    return true;
}

static void write_pair(writer *w, const char *name, const int64_t pair[2], int64_t without) {
    const bool alike = pair[0] == pair[1];
    if (!begin_default(w, name, alike && pair[0] == without))
        return;
    if (alike && chance(w))
        fprintf(w->text, "%lld", (long long)pair[0]);
    else
        fprintf(w->text, "[%lld, %lld]", (long long)pair[0], (long long)pair[1]);
}

static void write_padding(writer *w, const xn_conv_params *p) {
    const int64_t *pad = p->padding;
    const bool pairs = pad[0] == pad[2] && pad[1] == pad[3], one = pairs && pad[0] == pad[1];
    if (!begin_default(w, "padding", p->padding_kind == XN_PADDING_EXPLICIT && one && pad[0] == 0))
        return;
    if (p->padding_kind != XN_PADDING_EXPLICIT)
        fprintf(w->text, "\"%s\"", p->padding_kind == XN_PADDING_SAME ? "same" : "valid");
    else if (one && chance(w))
        fprintf(w->text, "%lld", (long long)pad[0]);
    else if (pairs && chance(w))
        fprintf(w->text, "[%lld, %lld]", (long long)pad[0], (long long)pad[1]);
    else
        fprintf(w->text, "[%lld, %lld, %lld, %lld]", (long long)pad[0], (long long)pad[1],
                (long long)pad[2], (long long)pad[3]);
}

static void write_bool(writer *w, const char *name, bool value) {
    if (begin_default(w, name, !value))
        fprintf(w->text, value ? "true" : "false");
}

static void write_float(writer *w, const char *name, float value) {
    begin_member(w, name);
    fprintf(w->text, "%.9g", (double)value);
}

static void write_conv(writer *w, const xn_layer *l) {
    const xn_conv_params *p = &l->window;
    if (begin_default(w, "mode", p->mode == XN_MODE_FLOAT))
        fprintf(w->text, "\"%s\"", xn_mode_name(p->mode));
    write_pair(w, "stride", p->stride, 1);
    write_padding(w, p);
    write_pair(w, "dilation", p->dilation, 1);
    if (begin_default(w, "groups", p->groups == 1))
        fprintf(w->text, "%lld", (long long)p->groups);
    if (begin_default(w, "pad_value", p->pad_value == 0))
        fprintf(w->text, "%d", p->pad_value);
    write_bool(w, "k_map", l->attributes.k_map);
    for (int i = 0; i < w->count; i++)
        if (w->tensors[i].layer == l && w->tensors[i].how == AS_PACKED) {
            begin_member(w, "packed_channels");
            fprintf(w->text, "%lld", (long long)l->weight->shape.dims[1]);
        }
}

static void write_pool(writer *w, const xn_layer *l) {
    if (l->global) {
        begin_member(w, "kernel");
        fprintf(w->text, "\"global\"");
    } else {
        write_pair(w, "kernel", l->kernel, -1);
        if (l->window.stride[0])
            write_pair(w, "stride", l->window.stride, -1);
        write_padding(w, &l->window);
    }
    if (l->op == XN_OP_AVG_POOL)
        write_bool(w, "count_padding", l->attributes.count_padding);
}

static void write_members(writer *w, const xn_layer *l) {
    const bool hardtanh = l->op == XN_OP_CLIP && l->attributes.low == -1 && l->attributes.high == 1;
    switch (l->op) {
    case XN_OP_CONV:
        write_conv(w, l);
        break;
    case XN_OP_MAX_POOL:
    case XN_OP_AVG_POOL:
        write_pool(w, l);
        break;
    case XN_OP_PRELU:
        if (!l->slope)
            write_float(w, "slope", l->attributes.slope);
        break;
    case XN_OP_QUANTIZE:
        write_float(w, "step", l->attributes.quantum);
        /* fallthrough */
    case XN_OP_CLIP:
        if (hardtanh && chance(w))
            break;
        write_float(w, "min", l->attributes.low);
        write_float(w, "max", l->attributes.high);
        break;
    case XN_OP_TOP_K:
        begin_member(w, "k");
        fprintf(w->text, "%lld", (long long)l->attributes.k);
        if (begin_default(w, "largest", l->attributes.largest))
            fprintf(w->text, l->attributes.largest ? "true" : "false");
        break;
    case XN_OP_SLICE:
        begin_member(w, "from");
        fprintf(w->text, "%lld", (long long)l->attributes.from);
        begin_member(w, "to");
        fprintf(w->text, "%lld", (long long)l->attributes.to);
        break;
    default:
        break;
    }
}

static void write_layer(writer *w, const xn_layer *l) {
    w->separator = "";
    fprintf(w->text, "{");
    begin_member(w, "op");
    fprintf(w->text, "\"%s\"", xn_op_name(l->op));
    begin_member(w, "name");
    fprintf(w->text, "\"%s\"", l->name);
    if (l->input_count) {
        begin_member(w, "inputs");
        for (int i = 0; i < l->input_count; i++)
            fprintf(w->text, "%s\"%s\"", i ? ", " : "[", l->inputs[i]);
        fprintf(w->text, "]");
    }
    write_members(w, l);
    fprintf(w->text, "}");
}

static void write_input(writer *w, const xn_graph_params *p) {
    begin_member(w, "input");
    fprintf(w->text, "{\"name\": \"%s\", \"datatype\": \"%s\", \"shape\": [", p->input_name,
            xn_datatype_name(p->input_datatype));
    for (int i = 0; i < p->input_shape.rank; i++)
        fprintf(w->text, "%s%lld", i ? ", " : "", (long long)p->input_shape.dims[i]);
    fprintf(w->text, "]");
    if (p->packed_channels)
        fprintf(w->text, ", \"packed_channels\": %lld", (long long)p->packed_channels);
    if (begin_default(w, "layout", p->input_layout == XN_IMAGE_NCHW || p->packed_channels))
        fprintf(w->text, "\"%s\"", p->input_layout == XN_IMAGE_NHWC ? "NHWC" : "NCHW");
    fprintf(w->text, "}");
}

static void write_outputs(writer *w, const xn_graph_params *p) {
    if (!p->output_count)
        return;
    begin_member(w, "outputs");
    for (int i = 0; i < p->output_count; i++)
        fprintf(w->text, "%s{\"name\": \"out%d\", \"layer\": \"%s\"}", i ? ", " : "[", i,
                p->outputs[i]);
    fprintf(w->text, "]");
}

static void write_config(writer *w, const nw_net *net, nw_files *out) {
    const xn_graph_params *p = &net->params;
    w->text = open_memstream(&out->config, &out->config_length);
    ck_assert_ptr_nonnull(w->text);
    w->separator = "{";
    begin_member(w, "format");
    fprintf(w->text, "\"xnord-network/1\"");
    if (begin_default(w, "precision", p->precision == XN_PRECISION_FP32))
        fprintf(w->text, "\"%s\"", xn_precision_name(p->precision));
    write_input(w, p);
    write_outputs(w, p);
    begin_member(w, "layers");
    for (int i = 0; i < p->layer_count; i++) {
        fprintf(w->text, i ? ",\n  " : "[\n  ");
        write_layer(w, &net->layers[i]);
    }
    fprintf(w->text, "]}\n");
    ck_assert_int_eq(fclose(w->text), 0);
}

void nw_write(const nw_net *net, xn_rng *rng, nw_files *out) {
    writer *w = calloc(1, sizeof *w);
    ck_assert_ptr_nonnull(w);
    w->rng = rng;
    collect(w, net);
    write_tensors(w, out);
    write_config(w, net, out);
    free(w);
}

void nw_files_free(nw_files *files) {
    free(files->config);
    free(files->tensors);
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t length) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s cannot be written", path);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

void nw_write_folder(const nw_net *net, xn_rng *rng, const char *folder) {
    nw_files files;
    nw_write(net, rng, &files);
    write_file(folder, "config.json", files.config, files.config_length);
    write_file(folder, "model.safetensors", files.tensors, files.tensors_length);
    nw_files_free(&files);
}
