/* exif.c: the orientation among the tags of an Exif block, which is a TIFF structure: a byte order,
 * 42, and the offset of a list of tags of 12 bytes. What is broken has no orientation. */
#include "xn_picture_inside.h"

#include <string.h>

#define ORIENTATION 0x0112
#define TAG_BYTES 12
enum { SHORT = 3, LONG = 4 };

typedef struct tiff {
    const uint8_t *bytes;
    size_t length;
    bool little;
} tiff;

static uint32_t read16(const tiff *t, size_t at) {
    const uint8_t *b = t->bytes + at;
    return t->little ? (uint32_t)b[1] << 8 | b[0] : xn_big16(b);
}

static uint32_t read32(const tiff *t, size_t at) {
    return t->little ? read16(t, at + 2) << 16 | read16(t, at) : xn_big32(t->bytes + at);
}

int xn_exif_orientation(const uint8_t *bytes, size_t length) {
    tiff t = {bytes, length, length > 0 && bytes[0] == 'I'};
    if (length < 10 || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0))
        return 1;
    const size_t list = read32(&t, 4);
    if (list > length - 2)
        return 1;
    const size_t room = (length - list - 2) / TAG_BYTES;
    size_t count = read16(&t, list);
    count = count < room ? count : room;
    for (size_t i = 0; i < count; i++) {
        const size_t tag = list + 2 + i * TAG_BYTES;
        const uint32_t type = read16(&t, tag + 2);
        if (read16(&t, tag) != ORIENTATION || (type != SHORT && type != LONG))
            continue;
        const uint32_t value = type == SHORT ? read16(&t, tag + 8) : read32(&t, tag + 8);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
