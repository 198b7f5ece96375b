/* conv.c: parameters of a convolution, and resolving them with the shapes to the one problem that
 * every backend works from. Everything is validated here, in 64 bits and before any allocation;
 * backends then compute in 32 bits without asking again.
 *
 * What has no effect is made canonical, so that requests that mean the same share a launch, and so
 * that no later product of it can overflow: dilation of a kernel of one tap, and stride to a
 * single output, become 1; mode xnor has one precision. Then dilation and stride are always below
 * the padded size. */
#include "xn_conv.h"
#include "xn_mem.h"

#include <inttypes.h>
#include <string.h>

void xn_conv_params_default(xn_conv_params *params) {
    *params = (xn_conv_params){
        .stride = {1, 1},
        .dilation = {1, 1},
        .padding_kind = XN_PADDING_EXPLICIT,
        .groups = 1,
        .scaling = XN_SCALING_XNOR,
        .mode = XN_MODE_XNOR,
        .output_datatype = XN_FP32,
    };
}

enum { NAMES = 3 };
const char *const xn_mode_names[] = {"xnor", "bwn", "float", NULL};
const char *const xn_scaling_names[] = {"xnor", "alpha", "none", NULL};
const char *const xn_precision_names[] = {"fp32", "tf32", "fp16", NULL};

const char *xn_mode_name(xn_mode mode) {
    return (unsigned)mode < NAMES ? xn_mode_names[mode] : "unknown";
}

const char *xn_scaling_name(xn_scaling scaling) {
    return (unsigned)scaling < NAMES ? xn_scaling_names[scaling] : "unknown";
}

const char *xn_precision_name(xn_precision precision) {
    return (unsigned)precision < NAMES ? xn_precision_names[precision] : "unknown";
}

/* ---- parameters alone ---- */

static xn_status check_range(const char *field, const int64_t *values, int count, int64_t least,
                             xn_error *error) {
    for (int i = 0; i < count; i++)
        if (values[i] < least || values[i] > INT32_MAX)
            return xn_fail(error, XN_ERR_MALFORMED, field,
                           "%s[%d] is %" PRId64 "; it must be from %" PRId64 " to %d", field, i,
                           values[i], least, INT32_MAX);
    return XN_OK;
}

static xn_status check_choices(const xn_conv_params *p, xn_datatype input_datatype,
                               xn_error *error) {
    char list[XN_DATATYPE_LIST];
    if ((unsigned)p->padding_kind > XN_PADDING_VALID)
        return xn_fail(error, XN_ERR_MALFORMED, "padding",
                       "padding kind is %d; expected explicit numbers, \"same\" or \"valid\"",
                       (int)p->padding_kind);
    if (p->groups < 1 || p->groups > INT32_MAX)
        return xn_fail(error, XN_ERR_MALFORMED, "groups",
                       "groups is %" PRId64 "; it must be from 1 to %d", p->groups, INT32_MAX);
    if (p->pad_value < -1 || p->pad_value > 1)
        return xn_fail(error, XN_ERR_MALFORMED, "pad_value",
                       "pad_value is %d; it must be -1, 0 or 1", p->pad_value);
    if ((unsigned)p->scaling >= NAMES)
        return xn_fail(error, XN_ERR_MALFORMED, "scaling",
                       "scaling is %d; expected \"xnor\", \"alpha\" or \"none\"", (int)p->scaling);
    if ((unsigned)p->mode >= NAMES)
        return xn_fail(error, XN_ERR_MALFORMED, "mode",
                       "mode is %d; expected \"xnor\", \"bwn\" or \"float\"", (int)p->mode);
    if ((unsigned)p->precision >= NAMES)
        return xn_fail(error, XN_ERR_MALFORMED, "precision",
                       "precision is %d; expected \"fp32\", \"tf32\" or \"fp16\"",
                       (int)p->precision);
    if (!xn_datatype_may_be(input_datatype, XN_AS_INPUT))
        return xn_fail(error, XN_ERR_MALFORMED, "input.datatype",
                       "input.datatype is %s; expected %s", xn_datatype_name(input_datatype),
                       xn_datatype_list(XN_AS_INPUT, XN_NAMES_OIP, "", list));
    if (!xn_datatype_may_be(p->output_datatype, XN_AS_OUTPUT))
        return xn_fail(error, XN_ERR_MALFORMED, "output_datatype",
                       "output_datatype is %s; expected %s", xn_datatype_name(p->output_datatype),
                       xn_datatype_list(XN_AS_OUTPUT, XN_NAMES_OIP, "", list));
    return XN_OK;
}

static xn_status check_epilogue(const xn_conv_params *p, const xn_weights_shape *weights,
                                xn_error *error) {
    if (weights->has_scale && p->scaling == XN_SCALING_NONE)
        return xn_fail(error, XN_ERR_MALFORMED, "scale",
                       "scale is given, or registered with the weights, but scaling is \"none\", "
                       "which has no factor it could "
                       "replace; leave scale out or choose scaling \"xnor\" or \"alpha\"");
    if (p->output_datatype != XN_INT32)
        return XN_OK;
    if (p->mode != XN_MODE_XNOR || p->scaling != XN_SCALING_NONE)
        return xn_fail(error, XN_ERR_MALFORMED, "output_datatype",
                       "output_datatype INT32 needs mode \"xnor\" and scaling \"none\"; mode is "
                       "\"%s\" and scaling is \"%s\"",
                       xn_mode_name(p->mode), xn_scaling_name(p->scaling));
    if (weights->has_bias)
        return xn_fail(error, XN_ERR_MALFORMED, "bias",
                       "bias is given, or registered with the weights, but output_datatype is "
                       "INT32, which has no room for a "
                       "real number; leave bias out or choose FP32 or FP16");
    return XN_OK;
}

/* All signs of a UINT8 would be +1: surely a mistake. */
static xn_status check_sign(const char *field, xn_datatype datatype, xn_error *error) {
    if (datatype != XN_UINT8)
        return XN_OK;
    return xn_fail(
        error, XN_ERR_GEOMETRY, field,
        "%s is UINT8, which has no negative values, and mode \"xnor\" computes with "
        "signs only; send INT8 of 1 and -1, BOOL (true is +1, false -1), or real numbers "
        "with their mean subtracted",
        field);
}

/* BITS has signs and no magnitudes. */
static xn_status check_bits(const xn_conv_params *p, xn_datatype input_datatype, xn_error *error) {
    if (input_datatype != XN_BITS)
        return XN_OK;
    if (p->mode != XN_MODE_XNOR)
        return xn_fail(error, XN_ERR_GEOMETRY, "input.datatype",
                       "input.datatype is BITS, which has signs only, and mode \"%s\" computes "
                       "with values; choose mode \"xnor\" or send another datatype",
                       xn_mode_name(p->mode));
    if (p->scaling == XN_SCALING_XNOR)
        return xn_fail(error, XN_ERR_GEOMETRY, "scaling",
                       "scaling is \"xnor\", whose K is made of the input's magnitudes, and "
                       "input.datatype is BITS, which has signs only; choose scaling \"alpha\" or "
                       "\"none\"");
    return XN_OK;
}

static xn_status check_params(const xn_conv_params *p, xn_datatype input_datatype,
                              const xn_weights_shape *weights, xn_error *error) {
    xn_status status = check_range("stride", p->stride, 2, 1, error);
    if (!status)
        status = check_range("dilation", p->dilation, 2, 1, error);
    if (!status)
        status = check_choices(p, input_datatype, error);
    if (!status && p->padding_kind == XN_PADDING_EXPLICIT)
        status = check_range("padding", p->padding, 4, 0, error);
    if (!status)
        status = check_epilogue(p, weights, error);
    if (!status)
        status = check_bits(p, input_datatype, error);
    if (!status && p->mode == XN_MODE_XNOR)
        status = check_sign("input.datatype", input_datatype, error);
    if (!status && p->mode == XN_MODE_XNOR)
        status = check_sign("weights.datatype", weights->datatype, error);
    return status;
}

/* ---- shapes ---- */

static xn_status check_dims(const char *field, const int64_t *dims, int first, xn_error *error) {
    for (int i = first; i < 4; i++)
        if (dims[i] > INT32_MAX)
            return xn_fail(error, XN_ERR_GEOMETRY, field,
                           "%s[%d] is %" PRId64 "; it must be at most %d", field, i, dims[i],
                           INT32_MAX);
    return XN_OK;
}

xn_status xn_conv_check_filter(const int64_t dims[4], xn_error *error) {
    int64_t filter = 1;
    xn_status status = check_dims("weights.shape", dims, 0, error);
    if (status)
        return status;
    for (int i = 1; i < 4; i++)
        if (!xn_mul_i64(filter, dims[i], &filter) || filter > INT32_MAX)
            return xn_fail(error, XN_ERR_GEOMETRY, "weights.shape",
                           "weights.shape makes filters of %" PRId64 " x %" PRId64 " x %" PRId64
                           " values; a filter may have at most %d",
                           dims[1], dims[2], dims[3], INT32_MAX);
    return XN_OK;
}

/* Ranks, sizes and their limits, each tensor for itself. */
static xn_status check_shapes(xn_datatype input_datatype, const xn_shape *input,
                              const xn_weights_shape *weights, const xn_conv_limits *limits,
                              xn_error *error) {
    int64_t elements;
    xn_shape w = {.rank = 4};
    memcpy(w.dims, weights->dims, sizeof weights->dims);
    if (input->rank != 4)
        return xn_fail(error, XN_ERR_GEOMETRY, "input.shape",
                       "input.shape has %d dimensions; it must be [N, C, H, W]", input->rank);
    xn_status status = xn_shape_elements(input, input_datatype, limits->max_elements, "input",
                                         &elements, NULL, error);
    if (!status)
        status =
            xn_shape_elements(&w, XN_FP32, limits->max_elements, "weights", &elements, NULL, error);
    if (!status)
        status = check_dims("input.shape", input->dims, 1, error);
    return status ? status : xn_conv_check_filter(w.dims, error);
}

static xn_status check_channels(const xn_conv_params *p, const xn_shape *input,
                                const xn_weights_shape *weights, xn_error *error) {
    int64_t channels = input->dims[1], out_channels = weights->dims[0];
    if (channels % p->groups)
        return xn_fail(error, XN_ERR_GEOMETRY, "groups",
                       "groups is %" PRId64 "; input has %" PRId64
                       " channels (input.shape[1]), which it must divide",
                       p->groups, channels);
    if (out_channels % p->groups)
        return xn_fail(error, XN_ERR_GEOMETRY, "groups",
                       "groups is %" PRId64 "; weights have %" PRId64
                       " output channels (weights.shape[0]), which it must divide",
                       p->groups, out_channels);
    if (weights->dims[1] != channels / p->groups)
        return xn_fail(error, XN_ERR_GEOMETRY, "weights.shape",
                       "weights.shape[1] is %" PRId64 "; input has %" PRId64
                       " channels and groups is %" PRId64 ", so it must be %" PRId64,
                       weights->dims[1], channels, p->groups, channels / p->groups);
    return XN_OK;
}

/* ---- one axis: height or width ---- */

typedef struct axis {
    const char *name, *lines; /* "height", "rows" */
    int index;                /* of stride and dilation: 0 or 1 */
    int64_t size, kernel, stride, dilation;
    int64_t before, after, out; /* results */
} axis;

/* TensorFlow's rule; for stride 1 it is PyTorch's too: as many outputs as strides fit in the
 * image, the kernel's overhang shared between both ends, the smaller half first. */
static void pad_same(axis *a, int64_t extent) {
    int64_t outputs = (a->size - 1) / a->stride + 1;
    int64_t total = (outputs - 1) * a->stride + extent - a->size;
    if (total < 0)
        total = 0;
    a->before = total / 2;
    a->after = total - total / 2;
}

static xn_status resolve_axis(xn_padding_kind kind, axis *a, xn_error *error) {
    int64_t extent = a->dilation * (a->kernel - 1) + 1; /* both below 2^31 */
    if (extent > INT32_MAX)
        return xn_fail(error, XN_ERR_GEOMETRY, "dilation",
                       "dilation[%d] is %" PRId64 ", which spreads the kernel's %s of %" PRId64
                       " over %" PRId64 " %s; at most %d",
                       a->index, a->dilation, a->name, a->kernel, extent, a->lines, INT32_MAX);
    if (kind == XN_PADDING_SAME)
        pad_same(a, extent);
    int64_t padded = a->size + a->before + a->after;
    if (padded > INT32_MAX)
        return xn_fail(error, XN_ERR_GEOMETRY, "padding",
                       "padding of %" PRId64 " and %" PRId64 " makes the input's %s %" PRId64
                       "; at most %d",
                       a->before, a->after, a->name, padded, INT32_MAX);
    if (extent > padded)
        return xn_fail(error, XN_ERR_GEOMETRY, "weights.shape",
                       "weights.shape[%d] is %" PRId64 ", with dilation %" PRId64
                       " a kernel over %" PRId64 " %s; input %s %" PRId64 " plus padding %" PRId64
                       " is only %" PRId64,
                       a->index + 2, a->kernel, a->dilation, extent, a->lines, a->name, a->size,
                       a->before + a->after, padded);
    a->out = (padded - extent) / a->stride + 1;
    if (a->out == 1)
        a->stride = 1;
    if (a->kernel == 1)
        a->dilation = 1;
    return XN_OK;
}

/* ---- the output ---- */

enum { SHAPE_TEXT = 120 };

static const char *shape_text(const xn_shape *shape, char text[SHAPE_TEXT]) {
    xn_shape_format(shape, text, SHAPE_TEXT);
    return text;
}

static xn_status check_output(const xn_conv_params *p, int64_t images, const xn_conv *conv,
                              const xn_conv_limits *limits, xn_error *error) {
    int64_t elements, operations;
    size_t bytes;
    xn_shape shape = {.rank = 4,
                      .dims = {images, conv->out_channels, conv->out_height, conv->out_width}};
    char text[SHAPE_TEXT];
    if (xn_shape_elements(&shape, p->output_datatype, limits->max_elements, "output", &elements,
                          &bytes, NULL))
        return xn_fail_limit(error, "max-elements", "output.shape",
                             "output.shape would be %s, more than %" PRId64
                             " elements; send less or raise --max-elements",
                             shape_text(&shape, text), limits->max_elements);
    if ((uint64_t)bytes > (uint64_t)limits->max_output_bytes)
        return xn_fail_limit(error, "max-output-bytes", "output.shape",
                             "output.shape would be %s, %zu bytes as %s; at most %" PRId64
                             " (--max-output-bytes)",
                             shape_text(&shape, text), bytes, xn_datatype_name(p->output_datatype),
                             limits->max_output_bytes);
    int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    if (!xn_mul_i64(elements, filter, &operations) || operations > limits->max_operations)
        return xn_fail_limit(error, "max-operations", "input.shape",
                             "output.shape would be %s with %" PRId64
                             " operations each, in all more than %" PRId64
                             "; send fewer images or raise --max-operations",
                             shape_text(&shape, text), filter, limits->max_operations);
    return XN_OK;
}

xn_epilogue xn_conv_epilogue(xn_mode mode, xn_scaling scaling, bool has_scale, bool has_bias,
                             xn_datatype output) {
    const bool scaled = scaling != XN_SCALING_NONE, has_alpha = mode != XN_MODE_FLOAT;
    return (xn_epilogue){.factor = !scaled     ? XN_FACTOR_NONE
                                   : has_scale ? XN_FACTOR_SCALE
                                   : has_alpha ? XN_FACTOR_ALPHA
                                               : XN_FACTOR_NONE,
                         .k = mode == XN_MODE_XNOR && scaling == XN_SCALING_XNOR,
                         .bias = has_bias,
                         .datatype = (int32_t)output,
                         .bits = output == XN_BITS};
}

static void fill(xn_conv *conv, const xn_conv_params *p, xn_datatype input_datatype,
                 const xn_shape *input, const xn_weights_shape *weights, const axis *h,
                 const axis *w) {
    memset(conv, 0, sizeof *conv);
    conv->channels = (int32_t)input->dims[1];
    conv->height = (int32_t)h->size;
    conv->width = (int32_t)w->size;
    conv->out_channels = (int32_t)weights->dims[0];
    conv->kernel_h = (int32_t)h->kernel;
    conv->kernel_w = (int32_t)w->kernel;
    conv->out_height = (int32_t)h->out;
    conv->out_width = (int32_t)w->out;
    conv->groups = (int32_t)p->groups;
    conv->group_channels = conv->channels / conv->groups;
    conv->group_out_channels = conv->out_channels / conv->groups;
    conv->stride_h = (int32_t)h->stride;
    conv->stride_w = (int32_t)w->stride;
    conv->dilation_h = (int32_t)h->dilation;
    conv->dilation_w = (int32_t)w->dilation;
    conv->pad_top = (int32_t)h->before;
    conv->pad_left = (int32_t)w->before;
    conv->pad_bottom = (int32_t)h->after;
    conv->pad_right = (int32_t)w->after;
    conv->pad_value = p->pad_value;
    conv->mode = (int32_t)p->mode;
    conv->input_datatype = (int32_t)input_datatype;
    conv->epilogue = xn_conv_epilogue(p->mode, p->scaling, weights->has_scale, weights->has_bias,
                                      p->output_datatype);
    conv->precision = p->mode == XN_MODE_XNOR ? XN_PRECISION_FP32 : (int32_t)p->precision;
}

xn_status xn_conv_resolve(const xn_conv_params *params, xn_datatype input_datatype,
                          const xn_shape *input, const xn_weights_shape *weights,
                          const xn_conv_limits *limits, xn_conv *out, int64_t *images,
                          xn_error *error) {
    xn_status status = check_params(params, input_datatype, weights, error);
    if (!status)
        status = check_shapes(input_datatype, input, weights, limits, error);
    if (!status)
        status = check_channels(params, input, weights, error);
    if (status)
        return status;

    axis h = {"height",
              "rows",
              0,
              .size = input->dims[2],
              .kernel = weights->dims[2],
              .stride = params->stride[0],
              .dilation = params->dilation[0]};
    axis w = {"width",
              "columns",
              1,
              .size = input->dims[3],
              .kernel = weights->dims[3],
              .stride = params->stride[1],
              .dilation = params->dilation[1]};
    if (params->padding_kind == XN_PADDING_EXPLICIT) {
        h.before = params->padding[0];
        h.after = params->padding[2];
        w.before = params->padding[1];
        w.after = params->padding[3];
    }
    status = resolve_axis(params->padding_kind, &h, error);
    if (!status)
        status = resolve_axis(params->padding_kind, &w, error);
    if (status)
        return status;

    xn_conv conv;
    fill(&conv, params, input_datatype, input, weights, &h, &w);
    status = check_output(params, input->dims[0], &conv, limits, error);
    if (status)
        return status;
    *out = conv;
    *images = input->dims[0];
    return XN_OK;
}

/* ---- the resolved problem ---- */

void xn_conv_input_to_fp32(const xn_conv *conv, const void *src, float *dst, int64_t count) {
    if (conv->mode == XN_MODE_XNOR)
        xn_tensor_to_signed_fp32((xn_datatype)conv->input_datatype, src, dst, count);
    else
        xn_tensor_to_fp32((xn_datatype)conv->input_datatype, src, dst, count);
}

int64_t xn_conv_input_elements(const xn_conv *conv) {
    return (int64_t)conv->channels * conv->height * conv->width;
}

int64_t xn_conv_output_elements(const xn_conv *conv) {
    return (int64_t)conv->out_channels * conv->out_height * conv->out_width;
}

static size_t tensor_bytes(int32_t datatype, int32_t channels, int32_t height, int32_t width) {
    size_t pixels = (size_t)height * (size_t)width;
    if (datatype == XN_BITS)
        return pixels * (size_t)xn_bits_pixel_bytes(channels);
    return pixels * (size_t)channels * xn_datatype_bytes((xn_datatype)datatype);
}

size_t xn_conv_input_bytes(const xn_conv *conv) {
    return tensor_bytes(conv->input_datatype, conv->channels, conv->height, conv->width);
}

size_t xn_conv_output_bytes(const xn_conv *conv) {
    return tensor_bytes(conv->epilogue.datatype, conv->out_channels, conv->out_height,
                        conv->out_width);
}

int64_t xn_conv_operations(const xn_conv *conv) {
    return xn_conv_output_elements(conv) * conv->group_channels * conv->kernel_h * conv->kernel_w;
}
