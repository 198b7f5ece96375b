/* libfuzzer.c: one target as a program of libFuzzer; -DXF_TARGET=xf_conv_json chooses it. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    XF_TARGET(data, size);
    return 0;
}
