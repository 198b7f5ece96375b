/* address.h: a client's address as text. */
#ifndef XN_ADDRESS_H
#define XN_ADDRESS_H

struct sockaddr;

#define XN_ADDRESS_MAX 64

/* "127.0.0.1:53422", "[::1]:53422"; an IPv4 address mapped into IPv6 as IPv4; "-" for NULL and for
 * what is no internet address. */
void xn_address_text(const struct sockaddr *address, char text[XN_ADDRESS_MAX]);

#endif
