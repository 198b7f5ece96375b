/* routes.c: see routes.h. The first row that fits counts. */
#include "routes.h"

#include "resources.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MODEL "/v2/models/{model}[/versions/{version}]"
#define REPOSITORY "/v2/repository/models/{model}"
#define SYSTEM_SHM "/v2/systemsharedmemory"
#define CUDA_SHM "/v2/cudasharedmemory"

static const xn_route routes[] = {
    {"/conv", XN_ROUTE_CONV, .post = &xn_conv_resource},
    {"/weights", XN_ROUTE_WEIGHTS, .get = &xn_weights_list_resource},
    {"/weights/*", XN_ROUTE_WEIGHTS, .get = &xn_weights_show_resource,
     .put = &xn_weights_put_resource, .delete = &xn_weights_delete_resource},
    {"/v2", XN_ROUTE_META, .get = &xn_server_resource},
    {"/v2/health/live", XN_ROUTE_HEALTH, .open = true, .get = &xn_live_resource},
    {"/v2/health/ready", XN_ROUTE_HEALTH, .open = true, .get = &xn_ready_resource},
    {"/v2/models/stats", XN_ROUTE_MODELS, .get = &xn_models_stats_resource},
    {MODEL, XN_ROUTE_MODELS, .get = &xn_model_resource},
    {MODEL "/ready", XN_ROUTE_MODELS, .get = &xn_model_ready_resource},
    {MODEL "/config", XN_ROUTE_MODELS, .get = &xn_model_config_resource},
    {MODEL "/stats", XN_ROUTE_MODELS, .get = &xn_model_stats_resource},
    {MODEL "/infer", XN_ROUTE_INFER, .post = &xn_infer_resource},
    {MODEL "/trace/setting", XN_ROUTE_MODELS, .get = &xn_unsupported_resource,
     .post = &xn_unsupported_resource},
    {"/v2/repository/index", XN_ROUTE_REPOSITORY, .post = &xn_index_resource},
    {REPOSITORY "/load", XN_ROUTE_REPOSITORY, .post = &xn_load_resource},
    {REPOSITORY "/unload", XN_ROUTE_REPOSITORY, .post = &xn_unload_resource},
    {SYSTEM_SHM "[/region/{region}]/status", XN_ROUTE_SHM, .get = &xn_shm_status_resource},
    {SYSTEM_SHM "[/region/{region}]/unregister", XN_ROUTE_SHM, .post = &xn_shm_unregister_resource},
    {SYSTEM_SHM "/region/{region}/register", XN_ROUTE_SHM, .post = &xn_shm_register_resource},
    {CUDA_SHM "[/region/{region}]/status", XN_ROUTE_SHM, .get = &xn_cuda_shm_status_resource},
    {CUDA_SHM "[/region/{region}]/unregister", XN_ROUTE_SHM,
     .post = &xn_cuda_shm_unregister_resource},
    {CUDA_SHM "/region/{region}/register", XN_ROUTE_SHM, .post = &xn_unsupported_resource},
    {"/v2/logging", XN_ROUTE_META, .get = &xn_unsupported_resource,
     .post = &xn_unsupported_resource},
    {"/v2/trace/setting", XN_ROUTE_META, .get = &xn_unsupported_resource,
     .post = &xn_unsupported_resource},
    {"/metrics", XN_ROUTE_METRICS, .get = &xn_metrics_resource},
    {"/openapi.yaml", XN_ROUTE_OPENAPI, .get = &xn_file_resource},
    {"/", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/docs", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/page.css", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/page.js", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/docs.css", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/docs.js", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    {"/icon.svg", XN_ROUTE_PAGE, .open = true, .get = &xn_file_resource},
    /* the server as a whole: of OPTIONS only (framing.c) */
    {"*", XN_ROUTE_META, .get = NULL},
};

static bool is_whole_server(const char *pattern) {
    return pattern[0] == '*';
}

static bool fits(const char *pattern, const char *path, xn_route_match *out) {
    const size_t most = sizeof out->parameters / sizeof *out->parameters;
    size_t count = 0;
    if (is_whole_server(pattern))
        return !strcmp(path, pattern);
    while (*pattern) {
        if (*pattern == '[') { /* taken where the path has its first words */
            size_t words = strcspn(pattern + 1, "{");
            pattern = strncmp(path, pattern + 1, words) ? strchr(pattern, ']') : pattern;
            pattern++;
        } else if (*pattern == ']') {
            pattern++;
        } else if (*pattern == '{' || *pattern == '*') {
            size_t length = *pattern == '{' ? strcspn(path, "/") : strlen(path);
            assert(count < most);
            if (*pattern == '{' && !length)
                return false;
            out->parameters[count].text = path;
            out->parameters[count++].length = length;
            path += length;
            pattern = *pattern == '{' ? strchr(pattern, '}') + 1 : pattern + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return !*path;
}

bool xn_route_find(const char *path, xn_route_match *out) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        *out = (xn_route_match){.route = &routes[i]};
        if (fits(routes[i].pattern, path, out))
            return true;
    }
    *out = (xn_route_match){0};
    return false;
}

void xn_route_text(const xn_route_match *match, char *text, size_t size) {
    size_t n = 0, parameters = 0;
    for (const char *at = match->route->pattern; *at && n + 1 < size; at++) {
        if (*at == '[' && !match->parameters[parameters].text)
            at = strchr(at, ']');
        parameters += *at == '{';
        if (*at != '[' && *at != ']')
            text[n++] = *at;
    }
    text[n] = '\0';
}

const xn_resource *xn_route_resource(const xn_route *route, const char *method) {
    if (!strcmp(method, "GET") || !strcmp(method, "HEAD"))
        return route->get;
    if (!strcmp(method, "POST"))
        return route->post;
    if (!strcmp(method, "PUT"))
        return route->put;
    return !strcmp(method, "DELETE") ? route->delete : NULL;
}

void xn_route_allow(const xn_route *route, char *text, size_t size) {
    const bool all = is_whole_server(route->pattern);
    snprintf(text, size, "%s%s%s%sOPTIONS", all || route->get ? "GET, HEAD, " : "",
             all || route->post ? "POST, " : "", all || route->put ? "PUT, " : "",
             all || route->delete ? "DELETE, " : "");
}

bool xn_route_is_oip(const char *path) {
    static const char *const roots[] = {"/v2/models", "/v2/repository", SYSTEM_SHM,
                                        CUDA_SHM,     "/v2/logging",    "/v2/trace"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        size_t length = strlen(roots[i]);
        if (!strncmp(path, roots[i], length) && (!path[length] || path[length] == '/'))
            return true;
    }
    return false;
}
