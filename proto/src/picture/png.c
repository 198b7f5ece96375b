/* png.c: the one file that knows libpng. Samples of 16 bits give their high byte, palettes their
 * colours; alpha and ancillary chunks (profiles, gamma, texts) are left out, as by Pillow.
 *
 * Errors jump as in jpeg.c: between the two ends are frames of the library, and functions of this
 * file that hold nothing. Memory comes from xn_mem.h, up to what the picture's header asks for. */
#include "xn_mem.h"
#include "xn_picture_inside.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

typedef struct decoder {
    jmp_buf back;
    png_structp library;
    png_infop info;
    const xn_picture *picture;
    const xn_picture_sink *sink;
    const char *field;
    xn_error *error;
    xn_status status;
    size_t read;    /* bytes of the file */
    size_t taken;   /* of memory, ever */
    bool no_memory; /* an allocation failed */
    uint8_t *rows;  /* one, or of an interlaced picture all */
} decoder;

static _Noreturn void give_up(decoder *d, xn_status status) {
    d->status = status;
    longjmp(d->back, 1);
}

static _Noreturn void refuse(decoder *d, const char *what) {
    give_up(d, xn_picture_fail(d->field, "PNG", what, d->error));
}

/* ---- what the library calls ---- */

static void on_error(png_structp library, png_const_charp reason) {
    decoder *d = png_get_error_ptr(library);
    char what[160];
    if (d->no_memory)
        give_up(d,
                xn_fail(d->error, XN_ERR_NO_MEMORY, d->field, "no memory to decode %s", d->field));
    snprintf(what, sizeof what, "cannot be decoded: %s", reason);
    refuse(d, what);
}

static void on_warning(png_structp library, png_const_charp reason) {
    (void)library;
    (void)reason;
}

static void *take(decoder *d, size_t bytes) {
    const size_t left = d->picture->decoder_bytes - d->taken;
    void *memory = bytes <= left ? xn_mem_alloc(bytes) : NULL;
    d->taken += memory ? bytes : 0;
    d->no_memory = d->no_memory || (!memory && bytes <= left);
    return memory;
}

static void *on_take(png_structp library, png_alloc_size_t bytes) {
    return take(png_get_mem_ptr(library), bytes);
}

static void on_give_back(png_structp library, void *memory) {
    (void)library;
    xn_mem_free(memory);
}

static void on_read(png_structp library, png_bytep out, size_t bytes) {
    decoder *d = png_get_io_ptr(library);
    if (bytes > d->picture->length - d->read)
        refuse(d, "ends before its picture does: it is cut short");
    memcpy(out, d->picture->bytes + d->read, bytes);
    d->read += bytes;
}

/* ---- decoding ---- */

/* Everything as 8 bits of grey or RGB. */
static void set_transforms(png_structp library) {
    png_set_expand(library); /* palettes, fewer bits; transparency becomes alpha */
    png_set_strip_16(library);
    png_set_strip_alpha(library);
}

static void begin(decoder *d) {
    png_structp library = d->library;
    d->info = png_create_info_struct(library);
    if (!d->info)
        png_error(library, "no memory");
    png_set_read_fn(library, d, on_read);
    png_set_user_limits(library, XN_PICTURE_MAX_SIDE, XN_PICTURE_MAX_SIDE);
    png_set_chunk_malloc_max(library, (png_alloc_size_t)64 << 10);
    png_set_keep_unknown_chunks(library, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(library, d->info);
    set_transforms(library);
}

static void ask_watch(decoder *d) {
    const xn_status status = xn_picture_ask(d->sink, d->error);
    if (status)
        give_up(d, status);
}

static void hand_over_rows(decoder *d) {
    static const int64_t rows_between_looks = 64;
    png_structp library = d->library;
    const xn_picture_sink *sink = d->sink;
    const int passes = png_set_interlace_handling(library);
    png_read_update_info(library, d->info);
    const size_t bytes = png_get_rowbytes(library, d->info);
    const int channels = png_get_channels(library, d->info);
    if (bytes != (size_t)sink->width * (size_t)channels || (channels != 1 && channels != 3))
        refuse(d, "has another size than its header");
    d->rows = take(d, bytes * (passes > 1 ? (size_t)sink->height : 1));
    if (!d->rows)
        png_error(library, "it needs more memory than its header says");
    if (passes > 1)
        memset(d->rows, 0, bytes * (size_t)sink->height);
    for (int pass = 1; pass <= passes; pass++) {
        for (int64_t y = 0; y < sink->height; y++) {
            uint8_t *row = d->rows + (passes > 1 ? (size_t)y * bytes : 0);
            png_read_row(library, row, NULL);
            if (pass == passes)
                sink->row(sink->context, y, row, (xn_pixels)channels);
            if (y % rows_between_looks == 0)
                ask_watch(d);
        }
    }
    png_read_end(library, NULL);
}

static void decode(decoder *d) {
    d->library = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, d, on_error, on_warning, d,
                                          on_take, on_give_back);
    if (!d->library)
        give_up(d,
                xn_fail(d->error, XN_ERR_NO_MEMORY, d->field, "no memory to decode %s", d->field));
    begin(d);
    hand_over_rows(d);
}

static xn_status guarded(decoder *d) {
    if (!setjmp(d->back))
        decode(d);
    return d->status;
}

xn_status xn_png_decode(const xn_picture *picture, const xn_picture_sink *sink, const char *field,
                        xn_error *error) {
    decoder d;
    memset(&d, 0, sizeof d);
    d.picture = picture;
    d.sink = sink;
    d.field = field;
    d.error = error;
    const xn_status status = guarded(&d);
    png_destroy_read_struct(&d.library, &d.info, NULL);
    xn_mem_free(d.rows);
    return status;
}
