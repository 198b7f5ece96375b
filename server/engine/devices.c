/* devices.c: what --devices lists, and opening a device as the settings say. */
#include "engine_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- the list of devices ---- */

static void list_devices(int found, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < found && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, i ? ", %d" : "%d", i);
}

static xn_status bad_list(const char *list, const char *what, int found, xn_error *error) {
    char text[120];
    list_devices(found, text, sizeof text);
    return xn_fail(error, XN_ERR_NO_DEVICE, "devices",
                   "--devices is \"%.63s\": %s; this host has %s; give \"all\" or ordinals such as "
                   "\"0\" or \"0,1\"",
                   list, what, text);
}

static bool contains(const int *ordinals, int count, int ordinal) {
    for (int i = 0; i < count; i++)
        if (ordinals[i] == ordinal)
            return true;
    return false;
}

/* The digits at *at, advanced; -1 for none or for more than any host has. */
static int read_ordinal(const char **at) {
    const char *digit = *at;
    int value = 0;
    while (*digit >= '0' && *digit <= '9' && value < 100000)
        value = value * 10 + (*digit++ - '0');
    if (digit == *at || (*digit && *digit != ','))
        return -1;
    *at = digit;
    return value;
}

xn_status xn_devices_parse(const char *list, int found, int *ordinals, int *count,
                           xn_error *error) {
    int taken = 0;
    if (!strcmp(list, "all")) {
        for (; taken < found; taken++)
            ordinals[taken] = taken;
        *count = taken;
        return XN_OK;
    }
    for (const char *at = list;; at++) {
        int ordinal = read_ordinal(&at);
        if (ordinal < 0)
            return bad_list(list, "it is not a list of ordinals", found, error);
        if (ordinal >= found)
            return bad_list(list, "there is no such device", found, error);
        if (contains(ordinals, taken, ordinal))
            return bad_list(list, "it names a device twice", found, error);
        ordinals[taken++] = ordinal;
        if (!*at)
            break;
    }
    *count = taken;
    return XN_OK;
}

/* ---- one device ---- */

xn_status xn_engine_open_device(const xn_config *config, const xn_backend *backend, int ordinal,
                                xn_device **out, xn_error *error) {
    bool automatic = !config->cpu_isa[0] || !strcmp(config->cpu_isa, "auto");
    const xn_device_options options = {.instruction_set = automatic ? NULL : config->cpu_isa,
                                       .threads = (int)config->threads,
                                       .pin_threads = config->cpu_pin};
    xn_device *device = NULL;
    xn_error why = {0};
    xn_status status = backend->device_open(ordinal, &device, error);
    if (status != XN_OK)
        return status;
    if (backend->device_configure)
        status = backend->device_configure(device, &options, &why);
    if (status == XN_ERR_UNSUPPORTED)
        xn_fail(error, status, "cpu-isa", "--cpu-isa: %.300s", why.message);
    else if (status != XN_OK && error)
        *error = why;
    if (status != XN_OK) {
        backend->device_close(device);
        return status;
    }
    *out = device;
    return XN_OK;
}
