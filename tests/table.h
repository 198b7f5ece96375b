/* table.h: cases as text. A file has a row a line, whose fields stand apart by '|' between blanks;
 * blanks around a field do not count. Lines that begin with '#' say what the next rows are about.
 *   <crlf> <cr> <lf> <tab> <sp> <nul> <7f>   that byte
 *   <NAME>                                   the text of a line "let NAME = text" above
 *   <NAME*20>                                twenty times that text, or that byte
 *   <>                                       these two characters */
#ifndef XN_TABLE_H
#define XN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { XN_TABLE_FIELDS = 16 };

typedef struct xn_table_field {
    const char *text; /* terminated, and may hold NUL before its end; "" behind the last field */
    size_t length;
} xn_table_field;

typedef struct xn_table_row {
    int line, count; /* in the file; of fields */
    xn_table_field fields[XN_TABLE_FIELDS];
} xn_table_row;

typedef struct xn_table {
    xn_table_row *rows;
    int count;
} xn_table;

/* The file of that name in tests/, which stays read until the process ends: the same each time. A
 * file that is not there or has no row ends the process. */
const xn_table *xn_table_read(const char *name);

/* The number in a field; a field that is none ends the process. */
long long xn_table_number(const xn_table_row *row, int field);

#endif
