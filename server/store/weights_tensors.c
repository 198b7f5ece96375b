/* weights_tensors.c: see weights_tensors.h. */
#include "weights_tensors.h"

#include "xn_mem.h"

static xn_status take(const xn_tensor_ref *ref, const char *field, int part,
                      xn_weights_tensors *out, const xn_tensor **tensors, xn_error *error) {
    xn_tensor *tensor = &out->tensors[part];
    if (!ref->present)
        return XN_OK;
    *tensor = (xn_tensor){ref->datatype, ref->shape, ref->elements, ref->bytes, ref->data};
    *tensors = tensor;
    if (xn_proto_tensor_in_place(ref))
        return XN_OK;
    tensor->data = out->copies[part] = xn_mem_alloc(ref->bytes);
    if (!tensor->data)
        return xn_fail(error, XN_ERR_NO_MEMORY, field, "no memory for %s of %zu bytes", field,
                       ref->bytes);
    return xn_proto_tensor_read(ref, field, out->copies[part], error);
}

xn_status xn_weights_tensors_read(const xn_tensor_ref *weights, const xn_tensor_ref *scale,
                                  const xn_tensor_ref *bias, xn_weights_tensors *out,
                                  xn_error *error) {
    *out = (xn_weights_tensors){0};
    xn_status status = take(weights, "weights", 0, out, &out->weights, error);
    if (!status)
        status = take(scale, "scale", 1, out, &out->scale, error);
    if (!status)
        status = take(bias, "bias", 2, out, &out->bias, error);
    return status;
}

void xn_weights_tensors_free(xn_weights_tensors *tensors) {
    for (int i = 0; i < 3; i++)
        xn_mem_free(tensors->copies[i]);
    *tensors = (xn_weights_tensors){0};
}
