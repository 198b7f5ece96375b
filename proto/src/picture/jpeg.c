/* jpeg.c: the one file that knows libjpeg-turbo. It decodes as Pillow does: the accurate integer
 * transform and smooth upsampling, the library's defaults.
 *
 * The library reports errors by calling a function that must not return: ours jumps back into
 * `guarded`. Between the jump's two ends are frames of the library, and functions of this file that
 * hold nothing: all that is to be freed hangs on the decoder, whose owner frees it afterwards. */
#include "xn_picture_inside.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
/* clang-format off: needs jpeglib.h */
#include <jerror.h>
/* clang-format on */

#define MOST_SCANS                                                                                 \
    100 /* progressive files have about 10; each is a pass over the whole picture                  \
         */

typedef struct decoder {
    struct jpeg_decompress_struct library; /* first: what the library hands back is cast to it */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const xn_picture *picture;
    const xn_picture_sink *sink;
    const char *field;
    xn_error *error;
    xn_status status;
    JSAMPROW row; /* of the library */
} decoder;

static decoder *decoder_of(j_common_ptr library) {
    return (decoder *)(void *)library;
}

static _Noreturn void give_up(decoder *d, xn_status status) {
    d->status = status;
    longjmp(d->back, 1);
}

static _Noreturn void refuse(decoder *d, const char *what) {
    give_up(d, xn_picture_fail(d->field, "JPEG", what, d->error));
}

/* ---- what the library calls ---- */

static _Noreturn void on_error(j_common_ptr library) {
    decoder *d = decoder_of(library);
    char reason[JMSG_LENGTH_MAX], what[JMSG_LENGTH_MAX + 24];
    if (library->err->msg_code == JERR_OUT_OF_MEMORY)
        give_up(d,
                xn_fail(d->error, XN_ERR_NO_MEMORY, d->field, "no memory to decode %s", d->field));
    library->err->format_message(library, reason);
    snprintf(what, sizeof what, "cannot be decoded: %s", reason);
    refuse(d, what);
}

/* Warnings after which the picture is what its author wrote. After any other one it is a guess. */
static bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
           code == JWRN_TOO_MUCH_DATA || code == JWRN_BOGUS_PROGRESSION;
}

static void on_message(j_common_ptr library, int level) {
    if (level >= 0 || is_harmless(library->err->msg_code))
        return;
    if (library->err->msg_code == JWRN_JPEG_EOF)
        refuse(decoder_of(library), "ends before its picture does: it is cut short");
    on_error(library);
}

static void keep_silent(j_common_ptr library) {
    (void)library;
}

static void ask_watch(decoder *d) {
    const xn_status status = xn_picture_ask(d->sink, d->error);
    if (status)
        give_up(d, status);
}

/* Called at each row of blocks while scans are collected. */
static void on_progress(j_common_ptr library) {
    decoder *d = decoder_of(library);
    if (d->library.input_scan_number > MOST_SCANS)
        refuse(d, "has more than 100 scans");
    ask_watch(d);
}

/* ---- decoding ---- */

static void begin(decoder *d) {
    j_decompress_ptr library = &d->library;
    const xn_picture *picture = d->picture;
    jpeg_create_decompress(library);
    library->mem->max_memory_to_use = (long)picture->decoder_bytes;
    library->progress = &d->progress;
    jpeg_mem_src(library, (unsigned char *)(uintptr_t)picture->bytes,
                 (unsigned long)picture->length);
    jpeg_read_header(library, TRUE);
    if (library->image_width != picture->width || library->image_height != picture->height)
        refuse(d, "says two sizes of itself");
    library->scale_num = 1;
    library->scale_denom = (unsigned)d->sink->denominator;
    if (library->num_components == 4)
        library->out_color_space = JCS_CMYK;
    else
        library->out_color_space = library->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
}

/* The row begins at an odd address: to an aligned one the library writes past the caches
 * (movntdq), and resampling would wait for memory. */
static void hand_over_rows(decoder *d) {
    static const int rows_between_looks = 64;
    j_decompress_ptr library = &d->library;
    const xn_picture_sink *sink = d->sink;
    jpeg_start_decompress(library);
    if (library->output_width != sink->width || library->output_height != sink->height)
        refuse(d, "has another size than its header");
    const JDIMENSION bytes = library->output_width * (JDIMENSION)library->output_components;
    d->row = library->mem->alloc_sarray((j_common_ptr)library, JPOOL_IMAGE, bytes + 1, 1)[0] + 1;
    while (library->output_scanline < library->output_height) {
        const int64_t y = library->output_scanline;
        if (jpeg_read_scanlines(library, &d->row, 1) != 1)
            refuse(d, "ends before its picture does: it is cut short");
        sink->row(sink->context, y, d->row, (xn_pixels)library->output_components);
        if (y % rows_between_looks == 0)
            ask_watch(d);
    }
    jpeg_finish_decompress(library);
}

static void decode(decoder *d) {
    begin(d);
    hand_over_rows(d);
}

static xn_status guarded(decoder *d) {
    if (!setjmp(d->back))
        decode(d);
    return d->status;
}

xn_status xn_jpeg_decode(const xn_picture *picture, const xn_picture_sink *sink, const char *field,
                         xn_error *error) {
    decoder d;
    memset(&d, 0, sizeof d);
    d.picture = picture;
    d.sink = sink;
    d.field = field;
    d.error = error;
    d.library.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.errors.output_message = keep_silent;
    d.progress.progress_monitor = on_progress;
    const xn_status status = guarded(&d);
    jpeg_destroy_decompress(&d.library);
    return status;
}
