/* infer_pictures.c: see infer_pictures.h. */
#include "infer_pictures.h"

#include "clock.h"
#include "xn_mem.h"

/* The list of a request's pictures, and the most memory that one of them takes. */
typedef struct picture_list {
    xn_picture *pictures;
    int64_t count;
    size_t decoding_bytes;
} picture_list;

static xn_status check(void *context, xn_error *error) {
    xn_inference *work = context;
    if (atomic_load(&work->gone)) {
        work->job.status = XN_ERR_CANCELLED; /* counted when the request is over */
        return xn_fail(error, XN_ERR_CANCELLED, NULL, "the client is gone");
    }
    if (xn_now_ns() <= work->job.deadline_ns)
        return XN_OK;
    return xn_fail(error, XN_ERR_DEADLINE, "timeout_ms",
                   "the deadline passed while pictures were decoded");
}

static xn_status inspect_all(const xn_inference *work, const xn_infer_io *io,
                             const xn_picture_rule *rule, picture_list *list, xn_error *error) {
    const xn_config *config = work->ctx->service->config;
    xn_oip_pictures walk;
    xn_oip_pictures_begin(io->input, (int)(io->input - io->parsed.inputs), work->ctx->body.memory,
                          &walk);
    for (int64_t i = 0; i < list->count; i++) {
        const void *bytes;
        size_t length;
        char field[64];
        xn_oip_pictures_field(&walk, field, sizeof field);
        xn_status status = xn_oip_pictures_next(&walk, &bytes, &length, error);
        if (!status)
            status = xn_picture_inspect(bytes, length, config->max_picture_pixels, field,
                                        &list->pictures[i], error);
        if (status)
            return status;
        const size_t needed = xn_picture_memory(&list->pictures[i], rule);
        list->decoding_bytes = needed > list->decoding_bytes ? needed : list->decoding_bytes;
    }
    return XN_OK;
}

static xn_status decode_all(xn_inference *work, const xn_infer_io *io, const xn_picture_rule *rule,
                            const picture_list *list, xn_error *error) {
    const xn_picture_watch watch = {check, work};
    const size_t bytes = xn_picture_input_bytes(rule);
    xn_oip_pictures names = {.input = io->input, .number = (int)(io->input - io->parsed.inputs)};
    xn_status status = xn_ticket_grow(&work->ctx->ticket, list->decoding_bytes, error);
    if (!status)
        status = xn_inference_take_input(work, (size_t)list->count * bytes, error);
    for (; !status && names.next < list->count; names.next++) {
        char field[64];
        xn_oip_pictures_field(&names, field, sizeof field);
        status = xn_picture_read(&list->pictures[names.next], rule, field, &watch,
                                 (unsigned char *)work->input + (size_t)names.next * bytes, error);
    }
    return status;
}

xn_status xn_infer_pictures_take(xn_inference *work, const xn_infer_io *io,
                                 const xn_picture_rule *rule, xn_error *error) {
    picture_list list = {.count = io->images};
    const size_t bytes = (size_t)list.count * sizeof *list.pictures; /* the batch is limited */
    xn_status status = xn_ticket_grow(&work->ctx->ticket, bytes, error);
    if (status)
        return status;
    list.pictures = xn_mem_alloc(bytes);
    if (!list.pictures)
        return xn_fail(error, XN_ERR_NO_MEMORY, "inputs", "no memory for %lld pictures",
                       (long long)list.count);
    status = inspect_all(work, io, rule, &list, error);
    if (!status)
        status = decode_all(work, io, rule, &list, error);
    xn_mem_free(list.pictures);
    return status;
}
