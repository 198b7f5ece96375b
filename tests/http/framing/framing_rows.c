/* framing_rows.c: see framing_matrix.h. The length of a text counts, so rows may hold NUL. */
#include "framing_matrix.h"

/* clang-format off */
#define TEXT(text) text, sizeof(text) - 1
#define ANSWERED(name_, text, status_) {name_, TEXT(text), {XT_ANSWERED, status_}, {0, 0}, NULL}
#define LAST(name_, text, status_) {name_, TEXT(text), {XT_LAST, status_}, {0, 0}, NULL}
#define REFUSED(name_, text, status_) {name_, TEXT(text), {XT_REFUSED, status_}, {0, 0}, NULL}
/* What 1.0 and later do, what 0.9 does, why. */
#define DIFFER(name_, text, later, before_, why_) {name_, TEXT(text), later, before_, why_}
#define V(outcome_, status_) {XT_##outcome_, status_}

#define DROPPED(name_, text) {name_, TEXT(text), {XT_DROPPED, 0}, {0, 0}, NULL}
#define HOST "Host: a\r\n"
#define GET "GET /v2/health/live HTTP/1.1\r\n" HOST
#define POST "POST /conv HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
#define TENSOR(values) "{\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [" values "]}"
#define BODY "{\"input\": " TENSOR("2") ", \"weights\": " TENSOR("3") "}" /* 130 bytes */
#define HIDDEN "GET /v2 HTTP/1.1\r\nHost: a\r\nX-Request-Id: smuggled\r\n\r\n" /* 53 bytes */
_Static_assert(sizeof BODY - 1 == 130 && sizeof HIDDEN - 1 == 53, "the lengths below");
#define CHUNKS "0\r\n\r\n"
#define GET_HOST(host) "GET /v2/health/live HTTP/1.1\r\nHost: " host "\r\n\r\n"
#define LINE(line) line "\r\n" HOST "\r\n"
#define LENGTH(value) POST "Content-Length:" value "\r\n\r\n" HIDDEN
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define ONE_CHUNK "82\r\n" BODY "\r\n" CHUNKS
#define CODED(value) POST "Transfer-Encoding:" value "\r\n\r\n" ONE_CHUNK
/* Taken; 0.9 closes behind the answer. */
#define TAKEN(name_, text, status_) \
    DIFFER(name_, text, V(ANSWERED, status_), V(LAST, status_), \
           "0.9 takes a bare LF for the end of a chunk's line: nothing behind it is a request")
#define CODING(value) POST "Transfer-Encoding:" value "\r\n\r\n" CHUNKS HIDDEN

const xt_row xt_framing_rows[] = {
    /* ---- well-formed: RFC 9112 wants them accepted ---- */
    ANSWERED("a blank value", GET "X-A: \t \r\n\r\n", 200),
    ANSWERED("a body", POST "Content-Length: 130\r\n\r\n" BODY, 200),
    ANSWERED("a length of zero", GET "Content-Length: 0\r\n\r\n", 200),
    ANSWERED("a method in small letters", LINE("get /v2 HTTP/1.1"), 405),
    ANSWERED("a method of all characters", LINE("!#$%&'*+-.^_`|~9zA /v2 HTTP/1.1"), 405),
    ANSWERED("a name of all characters", GET "!#$%&'*+-.^_`|~9zA: b\r\n\r\n", 200),
    ANSWERED("a path as a query", LINE("GET /v2?http://b/v2 HTTP/1.1"), 200),
    ANSWERED("a request as a body", POST "Content-Length: 53\r\n\r\n" HIDDEN, 400),
    ANSWERED("a request as a body for nobody", "POST /none HTTP/1.1\r\n" HOST
           "Content-Length: 53\r\n\r\n" HIDDEN, 404),
    ANSWERED("a request as a body of GET", GET "Content-Length: 53\r\n\r\n" HIDDEN, 200),
    ANSWERED("a request as a body of OPTIONS *", "OPTIONS * HTTP/1.1\r\n" HOST
           "Content-Length: 53\r\n\r\n" HIDDEN, 204),
    ANSWERED("a strange query", LINE("GET /v2?a&b==&&%zz HTTP/1.1"), 200),
    ANSWERED("a value of the upper half", GET "X-A: \x80\xff\r\n\r\n", 200),
    ANSWERED("a value with a tab", GET "X-A: a\tb c\r\n\r\n", 200),
    ANSWERED("a value with colons", GET "X-A: b: c:\r\n\r\n", 200),
    ANSWERED("Accept twice", GET "Accept: */*\r\nAccept: text/plain\r\n\r\n", 200),
    ANSWERED("an absolute target", LINE("GET http://a/v2/health/live HTTP/1.1"), 200),
    ANSWERED("an absolute target and a body", "POST http://a/conv HTTP/1.1\r\n" HOST
           "Content-Type: application/json\r\nContent-Length: 130\r\n\r\n" BODY, 200),
    ANSWERED("an absolute target by TLS", LINE("GET https://a:443/v2/health/live HTTP/1.1"), 200),
    ANSWERED("an absolute target in capitals", LINE("GET HTTP://A:80/v2/health/live HTTP/1.1"),
           200),
    ANSWERED("an absolute target, a query", LINE("GET http://a/v2/health/live?x=/y HTTP/1.1"),
           200),
    ANSWERED("an absolute target, a query alone", LINE("GET http://a?x=1 HTTP/1.1"), 200),
    ANSWERED("an absolute target, another host", LINE("GET http://b/v2/health/live HTTP/1.1"),
           200),
    ANSWERED("an absolute target, encoded", LINE("GET http://a/v2/health/%6cive HTTP/1.1"), 200),
    ANSWERED("an absolute target, no path", LINE("GET http://a HTTP/1.1"), 200),
    ANSWERED("an absolute target, version 6", LINE("GET http://[::1]:80/v2/health/live HTTP/1.1"),
           200),
    ANSWERED("an empty line before", "\r\n" GET "\r\n", 200),
    ANSWERED("an empty query", LINE("GET /v2? HTTP/1.1"), 200),
    ANSWERED("an empty value", GET "X-A:\r\n\r\n", 200),
    ANSWERED("an encoded path", LINE("GET /v2/health/%6cive HTTP/1.1"), 200),
    ANSWERED("an unknown field twice", GET "X-A: 1\r\nX-A: 2\r\n\r\n", 200),
    ANSWERED("an unknown method", LINE("BREW /v2 HTTP/1.1"), 405),
    ANSWERED("an upgrade nobody makes", GET
           "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", 200),
    ANSWERED("blanks and tabs around a host", "GET /v2 HTTP/1.1\r\nHost:\t a \t\r\n\r\n", 200),
    ANSWERED("blanks behind other fields", "POST /conv HTTP/1.1\r\n" HOST
           "Content-Type: application/json \t\r\nX-Request-Id: x \r\nContent-Length: 130\r\n\r\n"
           BODY, 200),
    ANSWERED("characters that clients leave as they are", LINE(
           "GET /v2?shape=[1,1]&x={|}^`\"<> HTTP/1.1"), 200),
    LAST("close", GET "Connection: close\r\n\r\n", 200),
    LAST("close, and a body", POST "Connection: close\r\nContent-Length: 130\r\n\r\n" BODY, 200),
    ANSWERED("HEAD", "HEAD /v2 HTTP/1.1\r\n" HOST "\r\n", 200),
    ANSWERED("host: a port", GET_HOST("a:80"), 200),
    ANSWERED("host: an address", GET_HOST("127.0.0.1:8080"), 200),
    ANSWERED("host: an address of version 6", GET_HOST("[::1]"), 200),
    ANSWERED("host: an address of version 6 and a port", GET_HOST("[2001:db8::1]:8080"), 200),
    ANSWERED("host: an empty port", GET_HOST("a:"), 200),
    ANSWERED("host: an encoded blank", GET_HOST("a%20b"), 200),
    ANSWERED("host: every character of a name", GET_HOST("A-z.0_~!$&'()*+;="), 200),
    ANSWERED("host: nothing", GET_HOST(""), 200),
    ANSWERED("host: the largest port", GET_HOST("a:65535"), 200),
    ANSWERED("keep-alive", GET "Connection: keep-alive\r\n\r\n", 200),
    ANSWERED("names in capitals", "GET /v2 HTTP/1.1\r\nHOST: a\r\nACCEPT: */*\r\n\r\n", 200),
    ANSWERED("names in small letters", "GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n", 200),
    ANSWERED("names like others", GET
           "Content-Length-X: 53\r\nTransfer-Encodin: chunked\r\nTransfer_Encoding: chunked\r\n"
           "\r\n", 200),
    ANSWERED("no blank before a length", POST "Content-Length:130\r\n\r\n" BODY, 200),
    ANSWERED("no blank behind the colon", "GET /v2 HTTP/1.1\r\nHost:a\r\n\r\n", 200),
    ANSWERED("OPTIONS *", LINE("OPTIONS * HTTP/1.1"), 204),
    ANSWERED("OPTIONS of a host", LINE("OPTIONS http://a HTTP/1.1"), 204),
    ANSWERED("OPTIONS of a path", LINE("OPTIONS /conv HTTP/1.1"), 204),
    ANSWERED("plain", GET "\r\n", 200),
    ANSWERED("strange cookies", GET "Cookie: a=b; c;=;,\"\r\nCookie: =\r\n\r\n", 200),
    DIFFER("tabs and blanks around a length", POST "Content-Length:\t130\t \r\n\r\n" BODY,
           V(ANSWERED, 200), V(REFUSED, 400), "0.9 takes no blank behind a length"),
    ANSWERED("TE and Trailer", GET "TE: trailers\r\nTrailer: X-A\r\n\r\n", 200),
    ANSWERED("TRACE", LINE("TRACE /v2 HTTP/1.1"), 405),
    LAST("version 1.0", "GET /v2 HTTP/1.0\r\n\r\n", 200),
    LAST("version 1.0 and a body",
           "POST /conv HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 130\r\n\r\n"
           BODY, 200),
    LAST("version 1.0 knows no Expect", "GET /v2 HTTP/1.0\r\nExpect: miracles\r\n\r\n", 200),
    LAST("version 1.0 with a host", LINE("GET /v2 HTTP/1.0"), 200),
    ANSWERED("version 1.0, kept", "GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200),
    ANSWERED("version 1.2", LINE("GET /v2 HTTP/1.2"), 200),
    ANSWERED("zeros before a length", POST "Content-Length: 000130\r\n\r\n" BODY, 200),
    /* ---- Expect ---- */
    ANSWERED("Expect and a body", POST "Expect: 100-continue\r\nContent-Length: 130\r\n\r\n" BODY,
           200),
    LAST("Expect and a length of zero", GET
           "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", 200),
    LAST("Expect and a length of zeros", GET
           "Expect: 100-continue\r\nContent-Length: 000\r\n\r\n", 200),
    ANSWERED("Expect in other letters", POST
           "Expect:\t100-Continue \r\nContent-Length: 130\r\n\r\n" BODY, 200),
    LAST("Expect twice", GET "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", 200),
    LAST("Expect without a body", GET "Expect: 100-continue\r\n\r\n", 200),
    REFUSED("Expect: a first, unknown one", GET "Expect: x\r\nExpect: 100-continue\r\n\r\n", 417),
    REFUSED("Expect: a list", POST "Expect: 100-continue, x\r\nContent-Length: 53\r\n\r\n" HIDDEN,
           417),
    REFUSED("Expect: a second, unknown one", GET "Expect: 100-continue\r\nExpect: x\r\n\r\n", 417),
    REFUSED("Expect: an empty one", POST "Expect:\r\nContent-Length: 53\r\n\r\n" HIDDEN, 417),
    REFUSED("Expect: an unknown one", POST "Expect: miracles\r\nContent-Length: 53\r\n\r\n" HIDDEN,
           417),
    REFUSED("Expect: with more", POST "Expect: 100-continue;x\r\nContent-Length: 53\r\n\r\n"
           HIDDEN, 417),
    /* ---- Content-Length ---- */
    REFUSED("both: bad length, chunked", POST
           "Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKS HIDDEN, 400),
    REFUSED("both: chunked, length", POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
           CHUNKS HIDDEN, 400),
    REFUSED("both: length, chunked", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
           CHUNKS HIDDEN, 400),
    REFUSED("both: length, empty", POST "Content-Length: 53\r\nTransfer-Encoding:\r\n\r\n" CHUNKS
           HIDDEN, 400),
    REFUSED("both: length, identity", POST
           "Content-Length: 53\r\nTransfer-Encoding: identity\r\n\r\n" CHUNKS HIDDEN, 400),
    REFUSED("both: small letters", POST "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
           CHUNKS HIDDEN, 400),
    REFUSED("both: zero length, chunked", POST
           "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKS HIDDEN, 400),
    REFUSED("Content-Length:", LENGTH(""), 400),
    REFUSED("Content-Length: ", LENGTH(" "), 400),
    REFUSED("Content-Length: '53'", LENGTH(" '53'"), 400),
    REFUSED("Content-Length: +53", LENGTH(" +53"), 400),
    REFUSED("Content-Length: ,53", LENGTH(" ,53"), 400),
    REFUSED("Content-Length: -0", LENGTH(" -0"), 400),
    REFUSED("Content-Length: -53", LENGTH(" -53"), 400),
    REFUSED("Content-Length: 0b1", LENGTH(" 0b1"), 400),
    REFUSED("Content-Length: 0x35", LENGTH(" 0x35"), 400),
    REFUSED("Content-Length: 18446744073709551615", LENGTH(" 18446744073709551615"), 413),
    REFUSED("Content-Length: 18446744073709551616", LENGTH(" 18446744073709551616"), 413),
    REFUSED("Content-Length: 18446744073709551669", LENGTH(" 18446744073709551669"), 413),
    REFUSED("Content-Length: 36893488147419103285", LENGTH(" 36893488147419103285"), 413),
    REFUSED("Content-Length: 4611686018427387904", LENGTH(" 4611686018427387904"), 413),
    REFUSED("Content-Length: 5.3e1", LENGTH(" 5.3e1"), 400),
    REFUSED("Content-Length: 53 53", LENGTH(" 53 53"), 400),
    REFUSED("Content-Length: 53,", LENGTH(" 53,"), 400),
    REFUSED("Content-Length: 53, 53", LENGTH(" 53, 53"), 400),
    REFUSED("Content-Length: 53,53", LENGTH(" 53,53"), 400),
    REFUSED("Content-Length: 53.0", LENGTH(" 53.0"), 400),
    REFUSED("Content-Length: 53;", LENGTH(" 53;"), 400),
    REFUSED("Content-Length: 53\\t53", LENGTH(" 53\t53"), 400),
    REFUSED("Content-Length: 53\\xa0", LENGTH(" 53\xa0"), 400),
    REFUSED("Content-Length: 53a", LENGTH(" 53a"), 400),
    REFUSED("Content-Length: 5_3", LENGTH(" 5_3"), 400),
    REFUSED("Content-Length: 9223372036854775807", LENGTH(" 9223372036854775807"), 413),
    REFUSED("Content-Length: 9223372036854775808", LENGTH(" 9223372036854775808"), 413),
    REFUSED("Content-Length: 99999999999999999999999999999999999999999999", LENGTH(
           " 99999999999999999999999999999999999999999999"), 413),
    REFUSED("Content-Length: \"53\"", LENGTH(" \"53\""), 400),
    REFUSED("Content-Length: \\xa0" "53", LENGTH(" \xa0" "53"), 400),
    REFUSED("Content-Length: \\xd9\\xa5", LENGTH(" \xd9\xa5"), 400),
    REFUSED("Content-Length: a53", LENGTH(" a53"), 400),
    REFUSED("Content-Length: five", LENGTH(" five"), 400),
    REFUSED("two lengths: apart", POST "Content-Length: 53\r\nX-A: b\r\nCONTENT-LENGTH: 52\r\n\r\n"
           HIDDEN, 400),
    REFUSED("two lengths: in other letters", POST
           "Content-Length: 53\r\ncontent-length: 53\r\n\r\n" HIDDEN, 400),
    REFUSED("two lengths: one empty", POST "Content-Length:\r\nContent-Length: 53\r\n\r\n" HIDDEN,
           400),
    REFUSED("two lengths: one empty, last", POST "Content-Length: 53\r\nContent-Length:\r\n\r\n"
           HIDDEN, 400),
    REFUSED("two lengths: the same twice", POST "Content-Length: 53\r\nContent-Length: 53\r\n\r\n"
           HIDDEN, 400),
    REFUSED("two lengths: three", POST
           "Content-Length: 53\r\nContent-Length: 53\r\nContent-Length: 53\r\n\r\n" HIDDEN, 400),
    REFUSED("two lengths: two", POST "Content-Length: 53\r\nContent-Length: 5\r\n\r\n" HIDDEN,
           400),
    REFUSED("two lengths: two, one zero", POST "Content-Length: 0\r\nContent-Length: 53\r\n\r\n"
           HIDDEN, 400),
    REFUSED("two lengths: zero last", POST "Content-Length: 53\r\nContent-Length: 0\r\n\r\n"
           HIDDEN, 400),
    /* ---- Transfer-Encoding ---- */
    REFUSED("another and chunked", POST
           "Transfer-Encoding: x\r\ntransfer-encoding: chunked\r\n\r\n" CHUNKS HIDDEN, 400),
    REFUSED("chunked and another", POST
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" CHUNKS HIDDEN, 400),
    REFUSED("chunked twice", POST
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" CHUNKS HIDDEN, 400),
    TAKEN("chunked, a request in a chunk", CHUNKED "35\r\n" HIDDEN "\r\n" CHUNKS, 400),
    TAKEN("chunked, of GET", GET "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" CHUNKS, 200),
    LAST("chunked, of a route that is not there", "POST /none HTTP/1.1\r\n" HOST
           "Transfer-Encoding: chunked\r\n\r\n" CHUNKS, 404),
    TAKEN("chunked, empty", CHUNKED CHUNKS, 400),
    TAKEN("chunked, Expect", POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
           ONE_CHUNK, 200),
    TAKEN("chunked, zeros before a size", CHUNKED "00082\r\n" BODY "\r\n000\r\n\r\n", 200),
    TAKEN("chunked, a trailer", CHUNKED "82\r\n" BODY "\r\n0\r\nX-A: b\r\n\r\n", 200),
    TAKEN("chunked, a length as a trailer", CHUNKED "82\r\n" BODY
           "\r\n0\r\nContent-Length: 53\r\n\r\n", 200),
    REFUSED("chunked, of version 1.0", "POST /conv HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
           CHUNKS HIDDEN, 400),
    REFUSED("chunked, a size of words", CHUNKED "five\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, no size", CHUNKED "\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, a negative size", CHUNKED "-5\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, a signed size", CHUNKED "+5\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, a blank before a size", CHUNKED " 5\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, a blank behind a size", CHUNKED "5 \r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, 0x", CHUNKED "0x5\r\nhello\r\n" CHUNKS, 400),
    REFUSED("chunked, a size over 64 bits", CHUNKED "10000000000000005\r\nhello\r\n" CHUNKS, 413),
    REFUSED("chunked, more than its size", CHUNKED "5\r\nhello, world\r\n" CHUNKS, 400),
    REFUSED("chunked, a bare CR in a size", CHUNKED "5\rx\r\nhello\r\n" CHUNKS, 400),
    DIFFER("chunked, a bare LF behind a size", CHUNKED "82\n" BODY "\r\n" CHUNKS, V(REFUSED, 400),
           V(LAST, 200), "0.9 takes a bare LF for the end of a chunk's line"),
    DIFFER("chunked, a bare LF behind a chunk", CHUNKED "82\r\n" BODY "\n" CHUNKS, V(REFUSED, 400),
           V(LAST, 200), "0.9 takes a bare LF for the end of a chunk's line"),
    DIFFER("chunked, a bare LF at the end", CHUNKED "82\r\n" BODY "\r\n0\n\n", V(REFUSED, 400),
           V(LAST, 200), "0.9 takes a bare LF for the end of a chunk's line"),
    DIFFER("chunked, an extension", CHUNKED "82;a=b\r\n" BODY "\r\n" CHUNKS, V(REFUSED, 400),
           V(LAST, 200), "1.0.1 counts the LF behind an extension as the chunk's"),
    REFUSED("Transfer-Encoding:", CODING(""), 501),
    DIFFER("Transfer-Encoding:  chunked \\t", CODED("  chunked \t"), V(ANSWERED, 200),
           V(REFUSED, 501), "0.9 does not know this for chunked"),
    REFUSED("Transfer-Encoding: ,chunked", CODING(" ,chunked"), 501),
    REFUSED("Transfer-Encoding: \"chunked\"", CODING(" \"chunked\""), 501),
    REFUSED("Transfer-Encoding: \\xff" "chunked", CODING(" \xff" "chunked"), 501),
    REFUSED("Transfer-Encoding: chun ked", CODING(" chun ked"), 501),
    REFUSED("Transfer-Encoding: chunke", CODING(" chunke"), 501),
    TAKEN("Transfer-Encoding: CHUNKED", CODED(" CHUNKED"), 200),
    TAKEN("Transfer-Encoding: chunked", CODED(" chunked"), 200),
    TAKEN("Transfer-Encoding: Chunked", CODED(" Chunked"), 200),
    REFUSED("Transfer-Encoding: chunked,", CODING(" chunked,"), 501),
    REFUSED("Transfer-Encoding: chunked, chunked", CODING(" chunked, chunked"), 501),
    REFUSED("Transfer-Encoding: chunked, gzip", CODING(" chunked, gzip"), 501),
    REFUSED("Transfer-Encoding: chunked, identity", CODING(" chunked, identity"), 501),
    REFUSED("Transfer-Encoding: chunked;q=1", CODING(" chunked;q=1"), 501),
    REFUSED("Transfer-Encoding: chunked\\xa0", CODING(" chunked\xa0"), 501),
    REFUSED("Transfer-Encoding: gzip", CODING(" gzip"), 501),
    REFUSED("Transfer-Encoding: gzip, chunked", CODING(" gzip, chunked"), 501),
    REFUSED("Transfer-Encoding: identity", CODING(" identity"), 501),
    REFUSED("Transfer-Encoding: identity, chunked", CODING(" identity, chunked"), 501),
    REFUSED("Transfer-Encoding: x; a=\"chunked\"", CODING(" x; a=\"chunked\""), 501),
    REFUSED("Transfer-Encoding: xchunked", CODING(" xchunked"), 501),
    TAKEN("Transfer-Encoding:\\tchunked", CODED("\tchunked"), 200),
    TAKEN("Transfer-Encoding:chunked", CODED("chunked"), 200),
    /* ---- Host ---- */
    REFUSED("a bad host, version 1.0", "GET /v2 HTTP/1.0\r\nHost: a b\r\n\r\n", 400),
    REFUSED("host: %", GET_HOST("%"), 400),
    REFUSED("host: /", GET_HOST("/"), 400),
    REFUSED("host: ::1", GET_HOST("::1"), 400),
    REFUSED("host: <script>", GET_HOST("<script>"), 400),
    REFUSED("host: [127.0.0.1]", GET_HOST("[127.0.0.1]"), 400),
    REFUSED("host: [::1", GET_HOST("[::1"), 400),
    REFUSED("host: [::1%25eth0]", GET_HOST("[::1%25eth0]"), 400),
    REFUSED("host: [::1]80", GET_HOST("[::1]80"), 400),
    REFUSED("host: [::1]:x", GET_HOST("[::1]:x"), 400),
    REFUSED("host: [::g]", GET_HOST("[::g]"), 400),
    REFUSED("host: []", GET_HOST("[]"), 400),
    REFUSED("host: \\x80", GET_HOST("\x80"), 400),
    REFUSED("host: a b", GET_HOST("a b"), 400),
    REFUSED("host: a#b", GET_HOST("a#b"), 400),
    REFUSED("host: a%2", GET_HOST("a%2"), 400),
    REFUSED("host: a%zz", GET_HOST("a%zz"), 400),
    REFUSED("host: a, b", GET_HOST("a, b"), 400),
    REFUSED("host: a/b", GET_HOST("a/b"), 400),
    REFUSED("host: a: 80", GET_HOST("a: 80"), 400),
    REFUSED("host: a:-1", GET_HOST("a:-1"), 400),
    REFUSED("host: a:65536", GET_HOST("a:65536"), 400),
    REFUSED("host: a:80:90", GET_HOST("a:80:90"), 400),
    REFUSED("host: a:99999999999999999999", GET_HOST("a:99999999999999999999"), 400),
    REFUSED("host: a:b", GET_HOST("a:b"), 400),
    REFUSED("host: a?b", GET_HOST("a?b"), 400),
    REFUSED("host: a\"b", GET_HOST("a\"b"), 400),
    REFUSED("host: a\\b", GET_HOST("a\\b"), 400),
    REFUSED("host: a\\tb", GET_HOST("a\tb"), 400),
    REFUSED("host: a]", GET_HOST("a]"), 400),
    REFUSED("host: a^b", GET_HOST("a^b"), 400),
    REFUSED("host: a|b", GET_HOST("a|b"), 400),
    REFUSED("host: http://a", GET_HOST("http://a"), 400),
    REFUSED("host: u@a", GET_HOST("u@a"), 400),
    REFUSED("host: {a}", GET_HOST("{a}"), 400),
    REFUSED("no host", "GET /v2 HTTP/1.1\r\n\r\n", 400),
    REFUSED("no host and a body", "POST /conv HTTP/1.1\r\nContent-Length: 53\r\n\r\n" HIDDEN, 400),
    REFUSED("no host, an absolute target", "GET http://a/v2 HTTP/1.1\r\n\r\n", 400),
    REFUSED("no host, other fields", "GET /v2 HTTP/1.1\r\nX-A: b\r\n\r\n", 400),
    REFUSED("no host, version 1.2", "GET /v2 HTTP/1.2\r\n\r\n", 400),
    REFUSED("the same host twice", GET "host: a\r\n\r\n", 400),
    REFUSED("two hosts", GET "Host: b\r\n\r\n", 400),
    REFUSED("two hosts, version 1.0", "GET /v2 HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    /* ---- the request line ---- */
    REFUSED("a bare CR before the version", LINE("GET /v2 \rHTTP/1.1"), 400),
    DIFFER("a bare CR for a blank", LINE("GET\r/v2 HTTP/1.1"), V(DROPPED, 0), V(REFUSED, 400),
           "1.0 closes where it finds no blank in the line"),
    REFUSED("a bare CR in the target", LINE("GET /v2\r HTTP/1.1"), 400),
    REFUSED("a bare LF behind the request line", "GET /v2 HTTP/1.1\n" HOST "\r\n", 400),
    REFUSED("a bare LF behind the request line, alone", "GET /v2 HTTP/1.0\n\r\n", 400),
    DROPPED("a blank before the method", LINE(" GET /v2 HTTP/1.1") ),
    REFUSED("a blank behind the version", LINE("GET /v2 HTTP/1.1 "), 400),
    REFUSED("a blank in the target", LINE("GET /a b HTTP/1.1"), 400),
    REFUSED("a fragment", LINE("GET /v2#f HTTP/1.1"), 400),
    REFUSED("a long major version", LINE("GET /v2 HTTP/01.1"), 400),
    REFUSED("a long version", LINE("GET /v2 HTTP/1.10"), 400),
    DIFFER("a tab behind the method", LINE("GET\t/v2 HTTP/1.1"), V(DROPPED, 0), V(REFUSED, 400),
           "1.0 closes where it finds no blank in the line"),
    REFUSED("a tab behind the target", LINE("GET /v2\tHTTP/1.1"), 400),
    REFUSED("a tab in the target", LINE("GET /a\tb HTTP/1.1"), 400),
    REFUSED("a version and a bare CR", LINE("GET /v2 HTTP/1.1\r"), 400),
    REFUSED("a version in small letters", LINE("GET /v2 http/1.1"), 400),
    REFUSED("a version of letters", LINE("GET /v2 HTTP/a.b"), 400),
    REFUSED("a version with a comma", LINE("GET /v2 HTTP/1,1"), 400),
    REFUSED("a version with a sign", LINE("GET /v2 HTTP/+1.1"), 400),
    DIFFER("an empty line of bare LF before", "\n" GET "\r\n", V(DROPPED, 0), V(ANSWERED, 200),
           "as two empty lines"),
    REFUSED("an encoded NUL", LINE("GET /v2%00/health HTTP/1.1"), 400),
    REFUSED("an encoded NUL in the query", LINE("GET /v2?x=%00 HTTP/1.1"), 400),
    REFUSED("another protocol", LINE("GET /v2 HTTX/1.1"), 400),
    REFUSED("bare LF everywhere", "GET /v2 HTTP/1.1\nHost: a\n\n", 400),
    REFUSED("CONNECT of a host", LINE("CONNECT a:80 HTTP/1.1"), 501),
    REFUSED("CONNECT of a path", LINE("CONNECT / HTTP/1.1"), 501),
    REFUSED("half a version", LINE("GET /v2 HTTP/1"), 400),
    REFUSED("no version", LINE("GET /v2"), 400),
    REFUSED("no version, a blank", LINE("GET /v2 "), 400),
    DROPPED("nothing but a method", LINE("GET") ),
    DIFFER("NUL for an empty line before", "\0\r\n" GET "\r\n", V(DROPPED, 0), V(ANSWERED, 200),
           "0.9 takes a line that begins with NUL for an empty one, before it shows anything"),
    DROPPED("other bytes", "\x16\x03\x01\x02\x00\x01\r\n\r\n"),
    DROPPED("tabs for blanks", LINE("GET\t/v2\tHTTP/1.1") ),
    REFUSED("target * of GET", LINE("GET * HTTP/1.1"), 400),
    REFUSED("target * of options", LINE("options * HTTP/1.1"), 400),
    REFUSED("target * of POST", LINE("POST * HTTP/1.1"), 400),
    REFUSED("target **", LINE("GET ** HTTP/1.1"), 400),
    REFUSED("target */", LINE("GET */ HTTP/1.1"), 400),
    REFUSED("target ://a/", LINE("GET ://a/ HTTP/1.1"), 400),
    REFUSED("target ?x", LINE("GET ?x HTTP/1.1"), 400),
    REFUSED("target a", LINE("GET a HTTP/1.1"), 400),
    REFUSED("target a:80", LINE("GET a:80 HTTP/1.1"), 400),
    REFUSED("target ftp://a/v2", LINE("GET ftp://a/v2 HTTP/1.1"), 400),
    REFUSED("target http://", LINE("GET http:// HTTP/1.1"), 400),
    REFUSED("target http:///v2", LINE("GET http:///v2 HTTP/1.1"), 400),
    REFUSED("target http://<a>/", LINE("GET http://<a>/ HTTP/1.1"), 400),
    REFUSED("target http://?x", LINE("GET http://?x HTTP/1.1"), 400),
    REFUSED("target http://[::1/v2", LINE("GET http://[::1/v2 HTTP/1.1"), 400),
    REFUSED("target http://a%2fb/v2", LINE("GET http://a%2fb/v2 HTTP/1.1"), 400),
    REFUSED("target http://a:x/", LINE("GET http://a:x/ HTTP/1.1"), 400),
    REFUSED("target http://b of a bad request", LINE("GET http:// HTTP/1.1"), 400),
    REFUSED("target http://u@a/v2", LINE("GET http://u@a/v2 HTTP/1.1"), 400),
    REFUSED("target http:/a/v2", LINE("GET http:/a/v2 HTTP/1.1"), 400),
    REFUSED("target http:a", LINE("GET http:a HTTP/1.1"), 400),
    REFUSED("target v2", LINE("GET v2 HTTP/1.1"), 400),
    REFUSED("target v2/health", LINE("GET v2/health HTTP/1.1"), 400),
    REFUSED("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    REFUSED("two bare LF behind the request line", "GET /v2 HTTP/1.0\n\n", 400),
    REFUSED("two blanks behind the method", LINE("GET  /v2 HTTP/1.1"), 400),
    REFUSED("two blanks behind the target", LINE("GET /v2  HTTP/1.1"), 400),
    DIFFER("two empty lines before", "\r\n\r\n" GET "\r\n", V(DROPPED, 0), V(ANSWERED, 200),
           "0.9 skips them before it shows anything; RFC 9112 section 2.2 asks for one at least"),
    REFUSED("version 0.0", LINE("GET /v2 HTTP/0.0"), 505),
    REFUSED("version 0.9", LINE("GET /v2 HTTP/0.9"), 505),
    REFUSED("version 2.0", LINE("GET /v2 HTTP/2.0"), 505),
    REFUSED("version 2.1", LINE("GET /v2 HTTP/2.1"), 505),
    REFUSED("version 3.0", LINE("GET /v2 HTTP/3.0"), 505),
    REFUSED("version 9.9", LINE("GET /v2 HTTP/9.9"), 505),
    /* ---- the lines of the header section ---- */
    REFUSED("a bare CR at the end", GET "\r\r\n", 400),
    REFUSED("a bare LF and an end", GET "X-A: b\n\r\n", 400),
    REFUSED("a bare LF at the end", GET "\n", 400),
    REFUSED("a blank line that is not empty", GET " \r\n\r\n", 400),
    REFUSED("a coding behind a fold", POST "Transfer-Encoding:\r\n chunked\r\n\r\n" CHUNKS HIDDEN,
           400),
    REFUSED("a colon alone", GET ":\r\n\r\n", 400),
    REFUSED("a fold by tab", GET "X-A: b\r\n\tc\r\n\r\n", 400),
    REFUSED("a fold of blanks alone", GET "X-A: b\r\n \r\n\r\n", 400),
    REFUSED("a fold of the request line", "GET /v2 HTTP/1.1\r\n X: b\r\n" HOST "\r\n", 400),
    REFUSED("a fold with a colon", GET "X-A: b\r\n Content-Length: 53\r\n\r\n" HIDDEN, 400),
    REFUSED("a length behind a fold", POST "Content-Length:\r\n 53\r\n\r\n" HIDDEN, 400),
    REFUSED("a length made by a fold", POST "Content-Len: 53\r\n gth\r\n\r\n" HIDDEN, 400),
    REFUSED("a line of NUL", GET "\0\r\n\r\n", 400),
    REFUSED("a word", GET "word\r\n\r\n", 400),
    REFUSED("an empty name", GET ": b\r\n\r\n", 400),
    REFUSED("no colon", GET "no colon\r\n\r\n", 400),
    REFUSED("no colon, first", "GET /v2 HTTP/1.1\r\nword\r\n" HOST "\r\n", 400),
    DIFFER("NUL and a bare LF for an end", GET "X-A: b\r\n\0\n", V(REFUSED, 400), V(ANSWERED, 200),
           "as NUL before a bare LF"),
    REFUSED("NUL and fields that are not seen", GET "\0\r\nContent-Length: 53\r\n\r\n" HIDDEN,
           400),
    REFUSED("NUL at the end", GET "\0\r\n", 400),
    REFUSED("NUL for CR LF and for a colon", GET
           "X-A: b\0\0Content-Length\0" "53\r\n\r\n" HIDDEN, 400),
    REFUSED("a bare LF, a colon and NUL for a colon", GET
           "X-A: b\n:Content-Length\0" "53\r\n\r\n" HIDDEN, 400),
    DIFFER("NUL before CR LF and a bare LF", GET "X-A: b\0\r\n\n",
           V(REFUSED, 400), V(ANSWERED, 200),
           "as NUL before a bare LF"),
    DIFFER("NUL before a bare LF", GET "X-A: b\0\n\r\n", V(REFUSED, 400), V(ANSWERED, 200),
           "0.9 writes NUL over CR and LF: that cannot be told from CR LF"),
    REFUSED("NUL before a name", GET "\0X-A: b\r\n\r\n", 400),
    REFUSED("three folds", GET "X-A: b\r\n c\r\n d\r\n e\r\n\r\n", 400),
    REFUSED("two colons", GET "::\r\n\r\n", 400),
};

const xt_row xt_framing_keyed_rows[] = {
    ANSWERED("a key in a body", "POST /none HTTP/1.1\r\n" HOST
           "Content-Length: 26\r\n\r\nAuthorization: Bearer ab\r\n", 401),
    ANSWERED("a name like it", "GET /v2 HTTP/1.1\r\n" HOST "Authorizatio: Bearer " XT_MATRIX_KEY
           "\r\n" "\r\n", 401),
    ANSWERED("a wrong key", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer " XT_MATRIX_KEY
           "x\r\n" "\r\n", 401),
    LAST("the key as a trailer", "POST /conv HTTP/1.1\r\n" HOST
           "Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer " XT_MATRIX_KEY
           "\r\n\r\n", 401),
    ANSWERED("health without a key", GET "\r\n", 200),
    ANSWERED("no key", "GET /v2 HTTP/1.1\r\n" HOST "" "\r\n", 401),
    ANSWERED("no scheme", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: " XT_MATRIX_KEY "\r\n"
           "\r\n", 401),
    ANSWERED("the key", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer " XT_MATRIX_KEY "\r\n"
           "\r\n", 200),
    ANSWERED("the key, other letters", "GET /v2 HTTP/1.1\r\n" HOST "AUTHORIZATION:bearer "
           XT_MATRIX_KEY " \t\r\n" "\r\n", 200),
    REFUSED("the key: a bare CR behind the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\rx\r\n" "\r\n", 400),
    REFUSED("the key: a bare LF before a second", "GET /v2 HTTP/1.1\r\n" HOST
           "X-A: b\nAuthorization: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a bare LF behind the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\n" "\r\n", 400),
    REFUSED("the key: a blank before the colon", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization : Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a blank before the name", "GET /v2 HTTP/1.1\r\n" HOST
           " Authorization: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a blank in the name", "GET /v2 HTTP/1.1\r\n" HOST "Author ization: Bearer "
           XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a control character behind the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\x01\r\n" "\r\n", 400),
    REFUSED("the key: a fold before the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization:\r\n Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a fold behind the key", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer "
           XT_MATRIX_KEY "\r\n x\r\n" "\r\n", 400),
    REFUSED("the key: a fold behind the scheme", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer\r\n " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a fold in the name", "GET /v2 HTTP/1.1\r\n" HOST "Auth: Bearer "
           XT_MATRIX_KEY "\r\n orization\r\n" "\r\n", 400),
    REFUSED("the key: a key in a fold", "GET /v2 HTTP/1.1\r\n" HOST
           "X-A: b\r\n Authorization: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a tab before the colon", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization\t: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: a wrong one and the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer x\r\nAuthorization: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: CR CR LF behind the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\r\r\n" "\r\n", 400),
    REFUSED("the key: NUL at the end", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer "
           XT_MATRIX_KEY "\0\r\n" "\r\n", 400),
    REFUSED("the key: NUL before the key", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer \0"
           XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: NUL before the scheme", "GET /v2 HTTP/1.1\r\n" HOST "Authorization:\0Bearer "
           XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: NUL for CR LF behind the key", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\0\0X\0junk\r\n\r\n", 400),
    REFUSED("the key: NUL behind the key", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer "
           XT_MATRIX_KEY "\0junk\r\n" "\r\n", 400),
    REFUSED("the key: NUL behind the name", "GET /v2 HTTP/1.1\r\n" HOST "Authorization\0: Bearer "
           XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: NUL in the name", "GET /v2 HTTP/1.1\r\n" HOST "Author\0ization: Bearer "
           XT_MATRIX_KEY "\r\n" "\r\n", 400),
    REFUSED("the key: the key and a wrong one", "GET /v2 HTTP/1.1\r\n" HOST
           "Authorization: Bearer " XT_MATRIX_KEY "\r\nAuthorization: Bearer x\r\n" "\r\n", 400),
    REFUSED("the key: twice", "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer " XT_MATRIX_KEY
           "\r\nAuthorization: Bearer " XT_MATRIX_KEY "\r\n" "\r\n", 400),
};
/* clang-format on */

const int xt_framing_row_count = (int)(sizeof xt_framing_rows / sizeof *xt_framing_rows);
const int xt_framing_keyed_row_count =
    (int)(sizeof xt_framing_keyed_rows / sizeof *xt_framing_keyed_rows);
