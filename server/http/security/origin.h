/* origin.h: which web pages may talk to the daemon. Threat: a page that is open in a browser on
 * this machine, or in this network, reaches what only its browser can reach. A page of another site
 * says so in Origin; one that had its own name resolve to the daemon's address (DNS rebinding) says
 * so in Host. So Host must be a name that no attacker can own: an IP address, localhost, the
 * machine's own name, or one that the daemon was told. Pure, on strings. */
#ifndef XN_ORIGIN_H
#define XN_ORIGIN_H

#include <stdbool.h>

/* host: a valid Host field, or NULL when there is none (no browser omits it). names, here and
 * below: a list with commas; "*" stands for all. machine: its own name, or "". */
bool xn_origin_host_known(const char *host, const char *names, const char *machine);
/* Whether Origin is of the very server that Host names, or is in the list. */
bool xn_origin_is_own(const char *origin, const char *host);
bool xn_origin_listed(const char *origin, const char *origins);

#endif
