/* weights_file.c: see xn_weights_file.h. */
#include "xn_weights_file.h"

#include "xn_wire_form.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#define LENGTH_BYTES 8 /* of the header's length, in front of it */
#define DIGITS 16
#define ALIGNMENT 64

static const char opening[] = "{\"__metadata__\":{\"format\":\"xnord-weights-";
static const char version[] = "1 ";

#define DIGITS_AT (LENGTH_BYTES + sizeof opening - 1 + sizeof version - 1)
_Static_assert(DIGITS_AT + DIGITS + 1 == XN_WEIGHTS_FILE_MARK_BYTES, "and a quotation mark");

/* ---- CRC-64/XZ (ECMA-182, reflected), eight bytes at a time ---- */

#define POLYNOMIAL UINT64_C(0xc96c5795d7870f42)

static uint64_t tables[8][256]; /* tables[k][b]: byte b followed by k zero bytes */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (unsigned b = 0; b < 256; b++) {
        uint64_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][b] = crc;
    }
    for (unsigned b = 0; b < 256; b++)
        for (int k = 1; k < 8; k++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
}

/* The state after more bytes; it begins as 0 and is the checksum at any time. */
static uint64_t crc64(uint64_t crc, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; length >= 8; length -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8); /* little-endian, as all machines this runs on */
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= tables[7 - k][word >> (8 * k) & 255];
    }
    for (; length; length--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 255];
    return ~crc;
}

/* ---- writing ---- */

static void write_tensor(xn_text *text, const char *name, const xn_tensor *tensor, size_t *at) {
    xn_text_string(text, ",\"");
    xn_text_string(text, name);
    xn_text_string(text, "\":{\"dtype\":\"");
    xn_text_string(text, xn_datatype_describe(tensor->datatype)->safetensors);
    xn_text_string(text, "\",\"shape\":");
    xn_answer_shape(text, &tensor->shape);
    xn_text_string(text, ",\"data_offsets\":[");
    xn_text_int(text, (int64_t)*at);
    xn_text_string(text, ",");
    *at += tensor->bytes; /* they are in memory, so their sum is no overflow */
    xn_text_int(text, (int64_t)*at);
    xn_text_string(text, "]}");
}

static void put_digits(uint64_t value, unsigned char *out) {
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < DIGITS; i++)
        out[i] = (unsigned char)hex[value >> (4 * (DIGITS - 1 - i)) & 15];
}

void xn_weights_file_begin(const xn_tensor *weights, const xn_tensor *scale, const xn_tensor *bias,
                           xn_weights_file_head *out) {
    const xn_tensor *const tensors[] = {weights, scale, bias};
    static const xn_member members[] = {XN_MEMBER_WEIGHTS, XN_MEMBER_SCALE, XN_MEMBER_BIAS};
    xn_text text = xn_text_over((char *)out->bytes, sizeof out->bytes);
    size_t at = 0;
    xn_text_bytes(&text, "\0\0\0\0\0\0\0\0", LENGTH_BYTES);
    xn_text_string(&text, opening);
    xn_text_string(&text, version);
    xn_text_string(&text, "0000000000000000\"}");
    for (int i = 0; i < 3; i++)
        if (tensors[i])
            write_tensor(&text, xn_member_names[members[i]], tensors[i], &at);
    xn_text_string(&text, "}");
    while (text.length % ALIGNMENT)
        xn_text_string(&text, " ");
    assert(!text.overflow); /* three tensors of 8 dimensions take under 800 */
    out->length = text.length;
    for (int i = 0; i < LENGTH_BYTES; i++)
        out->bytes[i] = (unsigned char)((uint64_t)(text.length - LENGTH_BYTES) >> (8 * i));
    pthread_once(&tables_once, make_tables);
    const size_t after = DIGITS_AT + DIGITS;
    uint64_t crc = crc64(0, out->bytes, DIGITS_AT);
    crc = crc64(crc, out->bytes + after, out->length - after);
    for (int i = 0; i < 3; i++)
        if (tensors[i])
            crc = crc64(crc, tensors[i]->data, tensors[i]->bytes);
    out->checksum = crc;
    put_digits(crc, out->bytes + DIGITS_AT);
}

/* ---- reading ---- */

static bool read_digits(const unsigned char *text, uint64_t *value) {
    uint64_t read = 0;
    for (int i = 0; i < DIGITS; i++) {
        unsigned char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        read = read << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *value = read;
    return true;
}

xn_status xn_weights_file_mark(const void *bytes, size_t length, uint64_t *checksum,
                               xn_error *error) {
    const unsigned char *at = bytes;
    const size_t opening_end = LENGTH_BYTES + sizeof opening - 1;
    if (length == 0)
        return xn_fail(error, XN_ERR_MALFORMED, "format", "it is empty");
    if (length < opening_end || memcmp(at + LENGTH_BYTES, opening, sizeof opening - 1) != 0)
        return xn_fail(error, XN_ERR_MALFORMED, "format",
                       "it is not a weights file of xnord's: it does not begin with %s; to take "
                       "over a safetensors file, PUT it",
                       opening);
    if (length < XN_WEIGHTS_FILE_MARK_BYTES)
        return xn_fail(error, XN_ERR_MALFORMED, "format",
                       "it is torn: it ends after %zu bytes, within the header", length);
    if (memcmp(at + opening_end, version, sizeof version - 1) != 0)
        return xn_fail(error, XN_ERR_MALFORMED, "format",
                       "it is of another version of the format than %.1s, the one that is known",
                       version);
    if (!read_digits(at + DIGITS_AT, checksum) || at[DIGITS_AT + DIGITS] != '"')
        return xn_fail(error, XN_ERR_MALFORMED, "format",
                       "it is torn: there is no checksum at byte %zu", DIGITS_AT);
    return XN_OK;
}

xn_status xn_weights_file_parse(const void *bytes, size_t length, const xn_proto_limits *limits,
                                xn_weights_request *out, xn_error *error) {
    const xn_proto_body body = {.form = XN_FORM_SAFETENSORS, .bytes = bytes, .length = length};
    const unsigned char *at = bytes;
    const size_t after = DIGITS_AT + DIGITS;
    uint64_t stated = 0;
    xn_status status = xn_weights_file_mark(bytes, length, &stated, error);
    if (status)
        return status;
    pthread_once(&tables_once, make_tables);
    uint64_t crc = crc64(crc64(0, at, DIGITS_AT), at + after, length - after);
    if (crc != stated)
        return xn_fail(error, XN_ERR_MALFORMED, "format",
                       "it is torn or was changed: its %zu bytes have the checksum %016" PRIx64
                       ", but it states %016" PRIx64,
                       length, crc, stated);
    return xn_proto_parse_weights(&body, limits, out, error);
}
