/* openapi.c: proto/openapi.yaml inside the binary, so that what is served is what is in the tree.
 */
#include "resources.h"

__asm__(".section .rodata\n"
        ".global xn_openapi_yaml\n"
        ".global xn_openapi_yaml_end\n"
        "xn_openapi_yaml:\n"
        ".incbin \"proto/openapi.yaml\"\n"
        "xn_openapi_yaml_end:\n"
        ".byte 0\n"
        ".previous\n");
