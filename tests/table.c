/* table.c: see table.h. */
#include "table.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 64, FILES = 32 };

typedef struct word {
    char *name;
    xn_table_field text;
} word;

/* A file while it is read. */
typedef struct reader {
    const char *path;
    int line;
    word words[NAMES];
    int word_count;
} reader;

__attribute__((noreturn, format(printf, 3, 4))) static void stop(const char *path, int line,
                                                                 const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", path, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

/* ---- texts ---- */

static bool byte_named(const char *name, size_t length, char *out) {
    static const struct {
        const char *name;
        char byte;
    } bytes[] = {{"cr", '\r'}, {"lf", '\n'}, {"tab", '\t'}, {"sp", ' '}, {"nul", '\0'}};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        if (strlen(bytes[i].name) == length && !memcmp(bytes[i].name, name, length)) {
            *out = bytes[i].byte;
            return true;
        }
    if (length != 2 || !isxdigit((unsigned char)name[0]) || !isxdigit((unsigned char)name[1]))
        return false;
    *out = (char)strtoul((const char[]){name[0], name[1], 0}, NULL, 16);
    return true;
}

/* What stands for <name>. */
static void put_word(const reader *r, const char *name, size_t length, FILE *out) {
    char byte;
    if (byte_named(name, length, &byte)) {
        fputc(byte, out);
        return;
    }
    if (length == 4 && !memcmp(name, "crlf", 4)) {
        fputs("\r\n", out);
        return;
    }
    for (int i = 0; i < r->word_count; i++)
        if (strlen(r->words[i].name) == length && !memcmp(r->words[i].name, name, length)) {
            fwrite(r->words[i].text.text, 1, r->words[i].text.length, out);
            return;
        }
    stop(r->path, r->line, "there is no <%.*s>", (int)length, name);
}

static xn_table_field expand(const reader *r, const char *text, size_t length) {
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        stop(r->path, r->line, "no memory");
    for (const char *at = text, *end = text + length; at < end; at++) {
        const char *close = *at == '<' ? memchr(at, '>', (size_t)(end - at)) : NULL;
        if (!close || close == at + 1) {
            fputc(*at, out);
            continue;
        }
        const char *star = memchr(at, '*', (size_t)(close - at));
        for (long times = star ? strtol(star + 1, NULL, 10) : 1; times > 0; times--)
            put_word(r, at + 1, (size_t)((star ? star : close) - at) - 1, out);
        at = close;
    }
    fclose(out);
    return (xn_table_field){bytes, size};
}

/* Without the blanks around it. */
static xn_table_field trimmed(const reader *r, const char *text, size_t length) {
    while (length && text[0] == ' ')
        text++, length--;
    while (length && text[length - 1] == ' ')
        length--;
    return expand(r, text, length);
}

/* ---- files ---- */

static void read_let(reader *r, const char *text) {
    const char *equals = strstr(text, " = ");
    if (!equals || r->word_count == NAMES)
        stop(r->path, r->line, "no \"let NAME = text\", or one too many");
    word *w = &r->words[r->word_count];
    w->name = strndup(text, (size_t)(equals - text));
    w->text = trimmed(r, equals + 3, strlen(equals + 3));
    r->word_count++;
}

/* The next '|' with a blank, or the line's border, on both sides; NULL: there is none. */
static const char *next_bar(const char *line, const char *from) {
    for (const char *at = strchr(from, '|'); at; at = strchr(at + 1, '|'))
        if ((at == line || at[-1] == ' ') && (at[1] == ' ' || !at[1]))
            return at;
    return NULL;
}

static void read_row(reader *r, const char *line, xn_table *table) {
    table->rows = realloc(table->rows, (size_t)(table->count + 1) * sizeof *table->rows);
    xn_table_row *row = &table->rows[table->count++];
    *row = (xn_table_row){.line = r->line};
    for (const char *text = line, *end; text; text = end ? end + 1 : NULL) {
        if (row->count == XN_TABLE_FIELDS)
            stop(r->path, r->line, "more than %d fields", XN_TABLE_FIELDS);
        end = next_bar(line, text);
        row->fields[row->count++] = trimmed(r, text, end ? (size_t)(end - text) : strlen(text));
    }
    for (int i = row->count; i < XN_TABLE_FIELDS; i++)
        row->fields[i].text = "";
}

static xn_table read_file(const char *path) {
    reader r = {.path = path};
    xn_table table = {0};
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        stop(path, 0, "it cannot be opened: tests run from the repository's root");
    while (getline(&line, &size, file) > 0) {
        r.line++;
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "let ", 4))
            read_let(&r, line + 4);
        else if (*line && *line != '#')
            read_row(&r, line, &table);
    }
    free(line);
    fclose(file);
    if (!table.count)
        stop(path, r.line, "no row");
    for (int i = 0; i < r.word_count; i++) {
        free(r.words[i].name);
        free((char *)r.words[i].text.text);
    }
    return table;
}

const xn_table *xn_table_read(const char *name) {
    static struct {
        char path[128];
        xn_table table;
    } files[FILES];
    char path[128];
    int at = 0;
    snprintf(path, sizeof path, "tests/%s", name);
    while (at < FILES && files[at].path[0] && strcmp(files[at].path, path) != 0)
        at++;
    if (at == FILES)
        stop(path, 0, "more than %d tables", FILES);
    if (!files[at].path[0]) {
        strcpy(files[at].path, path);
        files[at].table = read_file(path);
    }
    return &files[at].table;
}

long long xn_table_number(const xn_table_row *row, int field) {
    char *end;
    const char *text = row->fields[field].text;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end)
        stop("a table", row->line, "field %d is no number: %s", field, text);
    return number;
}
