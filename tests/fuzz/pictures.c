/* pictures.c: encoded pictures: what is taken has values, what is refused a reason, and no more
 * memory is asked for than was said. */
#include "fuzz.h"
#include "xn_picture.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS (1 << 18)

static void read_by(const xn_picture *picture, int channels, bool fast) {
    const xn_shape shape = {3, {7, 5, channels}};
    xn_picture_rule rule;
    xn_error error = {.status = XN_OK};
    xn_picture_rule_default(XN_UINT8, XN_IMAGE_NHWC, &shape, &rule);
    rule.fast = fast;
    uint8_t *values = xf_alloc(xn_picture_input_bytes(&rule));
    xf_require(xn_picture_memory(picture, &rule) > 0, "it takes no memory");
    xn_status status = xn_picture_read(picture, &rule, "body", NULL, values, &error);
    if (status)
        xf_check_error(status, &error);
    free(values);
}

static void run(const uint8_t *data, size_t size) {
    xn_picture picture;
    xn_error error = {.status = XN_OK};
    xn_status status = xn_picture_inspect(data, size, MOST_PIXELS, "body", &picture, &error);
    if (status) {
        xf_check_error(status, &error);
        return;
    }
    xf_require(picture.width * picture.height <= MOST_PIXELS, "more pixels than allowed");
    xf_require(picture.orientation >= 1 && picture.orientation <= 8, "orientation");
    read_by(&picture, 3, false);
    read_by(&picture, 1, true);
}

void xf_jpeg(const uint8_t *data, size_t size) {
    run(data, size);
}

void xf_png(const uint8_t *data, size_t size) {
    run(data, size);
}
