/* address.h: a client's address as text, and as the identity that limits are counted by. */
#ifndef XN_ADDRESS_H
#define XN_ADDRESS_H

#include "admission.h"

struct sockaddr;

#define XN_ADDRESS_MAX 64

/* "127.0.0.1:53422", "[::1]:53422"; an IPv4 address mapped into IPv6 as IPv4; "-" for NULL and for
 * what is no internet address. */
void xn_address_text(const struct sockaddr *address, char text[XN_ADDRESS_MAX]);

/* What tells one client from another: an IPv4 address, of IPv6 the 64 bits of a network, for one
 * client may have all addresses in it. Zeros behind it. */
void xn_address_identity(const struct sockaddr *address,
                         unsigned char out[XN_CLIENT_IDENTITY_BYTES]);

#endif
