/* files.c: the files inside the binary: the page at / and openapi.yaml, as they are and as gzip has
 * them (the Makefile's FILES), so that what is served is what is in the tree.
 *
 * The page is public and holds no data: what it shows it asks of the other routes, with the key
 * that its user gives it. Its policy lets it load only these files and call only this server, and
 * forbids frames around it. */
#include "resources.h"

#include <stdio.h>
#include <string.h>

#define EMBED(symbol, file)                                                                        \
    extern const unsigned char symbol[], symbol##_end[];                                           \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #symbol "\n"                                                                \
            ".global " #symbol "_end\n" #symbol ":\n"                                              \
            ".incbin \"" XN_FILES "/" file "\"\n" #symbol "_end:\n"                                \
            ".byte 0\n"                                                                            \
            ".previous\n")
#define EMBED_BOTH(symbol, file)                                                                   \
    EMBED(symbol, file);                                                                           \
    EMBED(symbol##_gz, file ".gz")
#define BYTES(symbol) symbol, symbol##_end, symbol##_gz, symbol##_gz_end

EMBED_BOTH(xn_file_html, "page.html");
EMBED_BOTH(xn_file_css, "page.css");
EMBED_BOTH(xn_file_js, "page.js");
EMBED_BOTH(xn_file_docs_css, "docs.css");
EMBED_BOTH(xn_file_docs_js, "docs.js");
EMBED_BOTH(xn_file_icon, "icon.svg");
EMBED_BOTH(xn_file_openapi, "openapi.yaml");

typedef struct {
    const char *path, *media_type;
    const unsigned char *plain, *plain_end;
    const unsigned char *coded, *coded_end; /* of gzip */
} embedded_file;

static const embedded_file files[] = {
    {"/", "text/html; charset=utf-8", BYTES(xn_file_html)},
    {"/docs", "text/html; charset=utf-8", BYTES(xn_file_html)},
    {"/page.css", "text/css; charset=utf-8", BYTES(xn_file_css)},
    {"/page.js", "text/javascript; charset=utf-8", BYTES(xn_file_js)},
    {"/docs.css", "text/css; charset=utf-8", BYTES(xn_file_docs_css)},
    {"/docs.js", "text/javascript; charset=utf-8", BYTES(xn_file_docs_js)},
    {"/icon.svg", "image/svg+xml", BYTES(xn_file_icon)},
    {"/openapi.yaml", "application/yaml", BYTES(xn_file_openapi)},
};

static const struct {
    const char *name, *value;
} answer_headers[] = {
    {"Vary", "Accept-Encoding"},
    {"Cache-Control",
     "no-cache"}, /* kept, and asked about each time: another daemon, another page */
    {"Referrer-Policy", "no-referrer"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
     "require-trusted-types-for 'script'; trusted-types 'none'"},
};

static const embedded_file *find(const char *path) {
    const embedded_file *file = files;
    while (strcmp(file->path, path) != 0) /* the table of routes names no other */
        file++;
    return file;
}

/* What a gzip file ends with: the CRC-32 and the length of what is in it. */
static void write_tag(const embedded_file *file, bool coded, char *tag, size_t size) {
    const unsigned char *sum = file->coded_end - 8;
    snprintf(tag, size, "\"%02x%02x%02x%02x%02x%02x%02x%02x%s\"", sum[0], sum[1], sum[2], sum[3],
             sum[4], sum[5], sum[6], sum[7], coded ? "-gzip" : "");
}

/* Whether the client has it: If-None-Match is a list of tags, whose quotation marks no tag holds.
 */
static bool is_known(const xn_request *request, const char *tag) {
    const char *known = xn_request_header(request, "If-None-Match");
    return known && (!strcmp(known, "*") || strstr(known, tag));
}

static void show_file(xn_context *ctx) {
    xn_request *request = ctx->request;
    const embedded_file *file = find(xn_request_path(request));
    const bool coded =
        xn_coding_choose(xn_request_header(request, "Accept-Encoding")) == XN_CODING_GZIP;
    const unsigned char *bytes = coded ? file->coded : file->plain;
    const unsigned char *end = coded ? file->coded_end : file->plain_end;
    char tag[32];
    write_tag(file, coded, tag, sizeof tag);
    xn_request_add_header(request, "ETag", tag);
    for (size_t i = 0; i < sizeof answer_headers / sizeof *answer_headers; i++)
        xn_request_add_header(request, answer_headers[i].name, answer_headers[i].value);
    if (is_known(request, tag)) {
        xn_request_respond_empty(request, 304);
        return;
    }
    if (coded)
        xn_request_add_header(request, "Content-Encoding", xn_coding_name(XN_CODING_GZIP));
    xn_request_respond(request, 200, file->media_type, (void *)(uintptr_t)bytes,
                       (size_t)(end - bytes), NULL, NULL);
}

const xn_resource xn_file_resource = {.complete = show_file};
