/* mutate.c: random changes of an input, for where libFuzzer is not. */
#include "fuzz.h"

#include <string.h>

static uint64_t next_random(uint64_t *state, uint64_t below) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static size_t insert(uint8_t *data, size_t size, size_t capacity, size_t at, const void *bytes,
                     size_t length) {
    if (size + length > capacity)
        return size;
    memmove(data + at + length, data + at, size - at);
    memcpy(data + at, bytes, length);
    return size + length;
}

static const char *const tokens[] = {"[",
                                     "]",
                                     "{",
                                     "}",
                                     ",",
                                     ":",
                                     "\"",
                                     "\\",
                                     "\\u0064",
                                     "null",
                                     "true",
                                     "1e999",
                                     "-0.0",
                                     "1e-45",
                                     "9223372036854775808",
                                     "\"data\":",
                                     "\"data\":[1]",
                                     "\"input\":",
                                     "[[[[[[[[",
                                     "\"parameters\":{\"binary_data_size\":0}",
                                     "0.1234567890123456789012345",
                                     "16777217",
                                     "\xff",
                                     "\xc3\xa9",
                                     "\"shape\":[4294967296,4294967296]",
                                     ",\"stride\":0",
                                     "65536",
                                     " ",
                                     "\n",
                                     "=",
                                     ";q=0.5"};

size_t xf_mutate(uint64_t *state, uint8_t *data, size_t size, size_t capacity) {
    size_t at = (size_t)next_random(state, size + 1);
    switch (next_random(state, 7)) {
    case 0:
        if (at < size)
            data[at] ^= (uint8_t)(1u << next_random(state, 8));
        return size;
    case 1:
        if (at < size)
            data[at] = (uint8_t)next_random(state, 256);
        return size;
    case 2: { /* cut a piece out */
        size_t length = (size_t)next_random(state, 16);
        length = length < size - at ? length : size - at;
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    }
    case 3:
        return next_random(state, 4) ? size : at; /* cut the end off, now and then */
    case 4: {                                     /* copy a piece */
        uint8_t piece[64];
        size_t length = (size_t)next_random(state, sizeof piece);
        size_t from = (size_t)next_random(state, size + 1);
        length = length < size - from ? length : size - from;
        memcpy(piece, data + from, length);
        return insert(data, size, capacity, at, piece, length);
    }
    default: {
        const char *token = tokens[next_random(state, sizeof tokens / sizeof *tokens)];
        return insert(data, size, capacity, at, token, strlen(token));
    }
    }
}
