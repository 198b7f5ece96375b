/* png_header.c: what a PNG says of itself: size, kind, interlacing, and the orientation in its eXIf
 * chunk (PNG specification, third edition). It goes from chunk to chunk and decompresses nothing,
 * so that a file is refused, and its memory counted, before the library sees it. */
#include "xn_mem.h"
#include "xn_picture_inside.h"

#include <stdio.h>
#include <string.h>

#define SIGNATURE_BYTES 8
#define CHUNK_BYTES 12 /* length, type, checksum */
#define HEADER_BYTES 13
/* An upper bound for zlib's window and state, the palette and the library's own state. */
#define FIXED_BYTES ((size_t)512 << 10)

/* Samples of a pixel by colour type; 0: no such type. */
static int samples_of(int colour) {
    static const int samples[] = {1, 0, 3, 1, 2, 0, 4};
    return colour <= 6 ? samples[colour] : 0;
}

static xn_status read_header(const uint8_t *header, const char *field, xn_picture *out,
                             xn_error *error) {
    const int depth = header[8], samples = samples_of(header[9]);
    char what[80];
    out->width = xn_big32(header);
    out->height = xn_big32(header + 4);
    snprintf(what, sizeof what, "has colour type %d with %d bits a sample, which there is not",
             header[9], depth);
    if (!samples || (depth != 1 && depth != 2 && depth != 4 && depth != 8 && depth != 16))
        return xn_picture_fail(field, "PNG", what, error);
    return XN_OK;
}

/* The library holds four rows, as wide as 64 bits a pixel make them; of an interlaced picture there
 * is all of it beside these. Called with sides in their limits. */
static size_t memory_of(int64_t width, int64_t height, bool interlaced) {
    const size_t whole = interlaced ? (size_t)width * (size_t)height * 3 : 0;
    return FIXED_BYTES + 4 * 8 * (size_t)width + whole;
}

static void read_exif(const uint8_t *bytes, size_t length, xn_picture *out) {
    out->orientation = 1;
    for (size_t at = SIGNATURE_BYTES; length - at >= CHUNK_BYTES;) {
        const size_t data = xn_big32(bytes + at), room = length - at - CHUNK_BYTES;
        if (!memcmp(bytes + at + 4, "eXIf", 4) && data <= room) {
            out->orientation = xn_exif_orientation(bytes + at + 8, data);
            return;
        }
        if (data > room)
            return;
        at += CHUNK_BYTES + data;
    }
}

xn_status xn_png_inspect(const uint8_t *bytes, size_t length, const char *field, xn_picture *out,
                         xn_error *error) {
    static const uint8_t header[8] = {0, 0, 0, HEADER_BYTES, 'I', 'H', 'D', 'R'};
    const uint8_t *first = bytes + SIGNATURE_BYTES;
    if (length < SIGNATURE_BYTES + CHUNK_BYTES + HEADER_BYTES)
        return xn_picture_fail(field, "PNG", "ends within its header: it is cut short", error);
    if (memcmp(first, header, sizeof header) != 0)
        return xn_picture_fail(field, "PNG", "does not begin with its header", error);
    xn_status status = read_header(first + 8, field, out, error);
    if (status)
        return status;
    out->decoder_bytes = 0;
    if (out->width <= XN_PICTURE_MAX_SIDE && out->height <= XN_PICTURE_MAX_SIDE)
        out->decoder_bytes = memory_of(out->width, out->height, first[20] != 0);
    read_exif(bytes, length, out);
    return XN_OK;
}
