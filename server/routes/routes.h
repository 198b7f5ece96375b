/* routes.h: which resource a path and a method mean: the table of all routes. */
#ifndef XN_ROUTES_H
#define XN_ROUTES_H

#include "context.h"

typedef struct xn_route {
    /* "{what}" is one part of a path, "[...]" may be missing, "*" at the end is whatever follows.
     */
    const char *pattern;
    xn_route_label label;
    bool open; /* needs no key */
    const xn_resource *get, *post, *put, *delete;
} xn_route;

/* A path as a route's pattern has it. Parameters, "*" among them, are in their order, and are the
 * path's; text is NULL where a pattern has no such parameter, or the path leaves it out. */
typedef struct xn_route_match {
    const xn_route *route;
    struct {
        const char *text;
        size_t length;
    } parameters[2];
} xn_route_match;

/* False: there is nothing at that path. */
bool xn_route_find(const char *path, xn_route_match *out);
/* The pattern with what of it the path has: "/v2/models/{model}/infer". */
void xn_route_text(const xn_route_match *match, char *text, size_t size);
/* NULL: the route does not take that method. */
const xn_resource *xn_route_resource(const xn_route *route, const char *method);
/* The methods that it takes, as Allow has them: "GET, HEAD, OPTIONS". */
void xn_route_allow(const xn_route *route, char *text, size_t size);

/* Whether clients of the Open Inference Protocol read errors of that path, route or none: those
 * expect its form and its status codes. */
bool xn_route_is_oip(const char *path);

#endif
