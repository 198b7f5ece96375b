/* jpeg_header.c: what a JPEG says of itself before its first scan: size, components, orientation,
 * and whether its decoder must keep all coefficients. It reads the markers alone (ITU T.81, annex
 * B), so that a file is refused, and its memory counted, before the library sees it. */
#include "xn_mem.h"
#include "xn_picture_inside.h"

#include <stdio.h>
#include <string.h>

enum {
    SOF0 = 0xc0, /* the frame: baseline, and up to SOF15 */
    DHT = 0xc4,
    JPG = 0xc8,
    DAC = 0xcc,
    RST0 = 0xd0,
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda,
    APP1 = 0xe1,
    TEM = 0x01
};

#define MOST_COMPONENTS 4
#define COEFFICIENT_BYTES (64 * sizeof(int16_t)) /* of a block of 8x8 */
/* An upper bound for the library's rows, tables and state, which do not grow with the height. */
#define FIXED_BYTES ((size_t)512 << 10)
#define SAMPLE_BYTES ((size_t)128) /* of a column of a component */

typedef struct frame {
    int process; /* of SOF0 + process; -1: none yet */
    int64_t width, height;
    int components, across[MOST_COMPONENTS], down[MOST_COMPONENTS];
} frame;

typedef struct reader {
    const uint8_t *at, *end;
    const char *field;
    xn_error *error;
    frame frame;
    int orientation; /* 0: none yet */
} reader;

static xn_status fail(const reader *r, const char *what) {
    return xn_picture_fail(r->field, "JPEG", what, r->error);
}

static bool is_frame(int marker) {
    return marker >= SOF0 && marker < SOF0 + 16 && marker != DHT && marker != JPG && marker != DAC;
}

static bool stands_alone(int marker) {
    return marker == TEM || (marker >= RST0 && marker <= SOI);
}

/* The code of the next marker; bytes that belong to none are passed over, as the library does. */
static xn_status next_marker(reader *r, int *marker) {
    while (r->end - r->at >= 2) {
        const uint8_t *ff = memchr(r->at, 0xff, (size_t)(r->end - r->at) - 1);
        if (!ff)
            break;
        r->at = ff + 1;
        if (*r->at != 0 && *r->at != 0xff) {
            *marker = *r->at++;
            return XN_OK;
        }
    }
    return fail(r, "ends before its picture begins: it is cut short");
}

/* The bytes of a marker's segment, behind its length. */
static xn_status next_segment(reader *r, const uint8_t **bytes, size_t *length) {
    if (r->end - r->at < 2 || xn_big16(r->at) < 2 || xn_big16(r->at) > (size_t)(r->end - r->at))
        return fail(r, "ends within its headers: it is cut short");
    *bytes = r->at + 2;
    *length = xn_big16(r->at) - 2;
    r->at += xn_big16(r->at);
    return XN_OK;
}

/* Baseline, extended and progressive, coded by Huffman or arithmetic. */
static bool is_known(int process) {
    return process <= 2 || process == 9 || process == 10;
}

static xn_status read_frame(reader *r, int process, const uint8_t *bytes, size_t length) {
    frame *f = &r->frame;
    char what[120];
    if (f->process >= 0)
        return fail(r, "has two frames");
    if (!is_known(process))
        return fail(r, "is lossless or hierarchical: baseline and progressive ones are read");
    if (length < 6 || length != 6 + 3 * (size_t)bytes[5])
        return fail(r, "has a frame header of a wrong length");
    f->process = process;
    f->height = xn_big16(bytes + 1);
    f->width = xn_big16(bytes + 3);
    f->components = bytes[5];
    snprintf(what, sizeof what, "has %d bits a sample: 8 are read", bytes[0]);
    if (bytes[0] != 8)
        return fail(r, what);
    snprintf(what, sizeof what, "has %d components: 1, 3 or 4 are read", f->components);
    if (f->components != 1 && f->components != 3 && f->components != 4)
        return fail(r, what);
    for (int i = 0; i < f->components; i++) {
        f->across[i] = bytes[7 + 3 * i] >> 4;
        f->down[i] = bytes[7 + 3 * i] & 15;
        if (f->across[i] < 1 || f->across[i] > 4 || f->down[i] < 1 || f->down[i] > 4)
            return fail(r, "has sampling factors that are not 1 to 4");
    }
    return XN_OK;
}

static void read_exif(reader *r, const uint8_t *bytes, size_t length) {
    static const char exif[6] = "Exif\0";
    if (!r->orientation && length > sizeof exif && !memcmp(bytes, exif, sizeof exif))
        r->orientation = xn_exif_orientation(bytes + sizeof exif, length - sizeof exif);
}

static int most_of(const int *factors, int count) {
    int most = 1;
    for (int i = 0; i < count; i++)
        most = factors[i] > most ? factors[i] : most;
    return most;
}

/* Where not every scan has all components in full, the library keeps the coefficients of the whole
 * picture: in whole units of the largest sampling factors. Sides have 16 bits: no overflow. */
static size_t coefficient_bytes(const frame *f) {
    const int across = most_of(f->across, f->components), down = most_of(f->down, f->components);
    const size_t columns = ((size_t)f->width + 8 * (size_t)across - 1) / (8 * (size_t)across);
    const size_t rows = ((size_t)f->height + 8 * (size_t)down - 1) / (8 * (size_t)down);
    size_t bytes = 0;
    for (int i = 0; i < f->components; i++)
        bytes += columns * (size_t)f->across[i] * rows * (size_t)f->down[i] * COEFFICIENT_BYTES;
    return bytes;
}

static xn_status finish(const reader *r, const uint8_t *scan, size_t length, xn_picture *out) {
    const frame *f = &r->frame;
    if (f->process < 0)
        return fail(r, "has a scan before its frame");
    const bool progressive = f->process == 2 || f->process == 10;
    const bool partial = length < 1 || scan[0] < f->components;
    out->width = f->width;
    out->height = f->height;
    out->orientation = r->orientation ? r->orientation : 1;
    out->decoder_bytes = FIXED_BYTES + SAMPLE_BYTES * (size_t)f->width * (size_t)f->components +
                         (progressive || partial ? coefficient_bytes(f) : 0);
    return XN_OK;
}

xn_status xn_jpeg_inspect(const uint8_t *bytes, size_t length, const char *field, xn_picture *out,
                          xn_error *error) {
    reader r = {
        .at = bytes, .end = bytes + length, .field = field, .error = error, .frame.process = -1};
    for (;;) {
        const uint8_t *segment = NULL;
        size_t segment_length = 0;
        int marker = 0;
        xn_status status = next_marker(&r, &marker);
        if (status)
            return status;
        if (stands_alone(marker))
            continue;
        if (marker == EOI)
            return fail(&r, "has no picture in it");
        status = next_segment(&r, &segment, &segment_length);
        if (!status && is_frame(marker))
            status = read_frame(&r, marker - SOF0, segment, segment_length);
        if (status)
            return status;
        if (marker == APP1)
            read_exif(&r, segment, segment_length);
        if (marker == SOS)
            return finish(&r, segment, segment_length, out);
    }
}
