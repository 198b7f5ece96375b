/* xn_text.h: text written into a buffer of fixed size, for headers, messages and errors. What does
 * not fit is dropped and remembered; nothing here allocates. */
#ifndef XN_TEXT_H
#define XN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct xn_text {
    char *data;
    size_t size, length; /* length <= size; not terminated */
    bool overflow;       /* something did not fit */
} xn_text;

static inline xn_text xn_text_over(char *data, size_t size) {
    return (xn_text){data, size, 0, false};
}

void xn_text_bytes(xn_text *text, const char *bytes, size_t length); /* all or nothing */
void xn_text_string(xn_text *text, const char *string);
void xn_text_int(xn_text *text, int64_t value);
void xn_text_thousandths(xn_text *text, int64_t value); /* 12345 as "12.345" */

/* The inside of a JSON string: escaped, invalid UTF-8 replaced by U+FFFD. Stops before the first
 * character that would make the text longer than limit, so what is written is always whole. */
void xn_text_escaped(xn_text *text, const char *string, size_t limit);

/* The length of the valid UTF-8 character at s, or 0. s ends with a NUL, which is one of length 1;
 * nothing past it is read. */
size_t xn_text_utf8(const char *s);
bool xn_text_is_utf8(const char *string);

/* A short printable excerpt of bytes that came from outside, for messages: at most 40 characters,
 * what is not printable ASCII as '?', "..." where it was cut. Returns out. */
#define XN_TEXT_EXCERPT 44
const char *xn_text_excerpt(const char *bytes, size_t length, char out[XN_TEXT_EXCERPT]);

/* What of a closed set a word was probably meant to be: "; did you mean \"stride\"?", to end a
 * message with, or "" when nothing is near. names ends with NULL. Returns out. */
#define XN_TEXT_HINT 64
const char *xn_text_hint(const char *word, const char *const *names, char out[XN_TEXT_HINT]);
/* The same as the name alone, or NULL: equal but for case, or few edits away for its length. */
const char *xn_text_nearest(const char *word, const char *const *names);

/* The names with commas between them, cut to fit. names ends with NULL. Returns out. */
const char *xn_text_list(const char *const *names, char *out, size_t size);

/* Decimal digits of value at out, no terminator; at most 20. Returns how many. */
size_t xn_text_u64(uint64_t value, char *out);

#endif
