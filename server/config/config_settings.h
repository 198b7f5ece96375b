/* config_settings.h: the table behind config.h: one row a setting, and what can be done with one
 * row. Internal to the configuration and its tests. */
#ifndef XN_CONFIG_SETTINGS_H
#define XN_CONFIG_SETTINGS_H

#include "config.h"

#include <stddef.h>

typedef enum {
    XN_SETTING_TEXT,   /* char[] */
    XN_SETTING_LIST,   /* char[], items with commas between; given again adds one */
    XN_SETTING_CHOICE, /* char[], one of `choices` */
    XN_SETTING_ENUM,   /* an enum whose values are the positions in `choices` */
    XN_SETTING_BOOL,
    XN_SETTING_NUMBER, /* int64_t; "20000" or "2e4" */
    XN_SETTING_BYTES   /* int64_t; "1048576", "1024K" or "1M" */
} xn_setting_kind;

typedef struct xn_setting {
    const char *group;    /* the heading of its group in --help */
    const char *name;     /* the flag without dashes, and the key of the configuration file */
    const char *argument; /* what --help shows after the flag */
    xn_setting_kind kind;
    size_t offset, size;        /* of the field in xn_config */
    int64_t low, high, initial; /* range and default; initial alone for enums and booleans */
    const char *text;           /* the default of text and choices */
    const char *choices;        /* "a|b|c" */
    const char *help;           /* one sentence */
} xn_setting;

extern const xn_setting xn_settings[];
extern const int xn_setting_count;

/* A flag that is no setting: what to do instead of serving, or (XN_COMMAND_SERVE) the file. */
typedef struct xn_command_flag {
    const char *name, *argument; /* argument: "" takes none */
    xn_command command;
    const char *help;
} xn_command_flag;

extern const xn_command_flag xn_command_flags[];
extern const int xn_command_flag_count;

#define XN_SETTINGS_MAX 64 /* rows of the table, at most */

#define XN_SETTING_TEXT_MAX 3200 /* characters of any formatted value, with quotes and escapes */
#define XN_SETTING_ENV_MAX 48    /* characters of an environment variable's name */

/* The index of the setting of that name (length characters), or -1. */
int xn_setting_find(const char *name, size_t length);
/* "XNORD_MAX_BODY_BYTES" */
void xn_setting_environment(const xn_setting *setting, char name[XN_SETTING_ENV_MAX]);

void xn_setting_reset(const xn_setting *setting, xn_config *config); /* to the default */
/* Writes the field from its text, or fails naming source ("--port", "app.conf:12: port"), value
 * and what is accepted. */
xn_status xn_setting_parse(const xn_setting *setting, const char *value, const char *source,
                           xn_config *config, xn_error *error);
/* The same, but for a list the text is put behind what is there. */
xn_status xn_setting_add(const xn_setting *setting, const char *value, const char *source,
                         xn_config *config, xn_error *error);
/* The value as the configuration file writes it; parse reads it back to the same field. */
void xn_setting_format(const xn_setting *setting, const xn_config *config,
                       char text[XN_SETTING_TEXT_MAX]);
/* The text for a message: what is not printable becomes '?', and only what fits is shown. */
void xn_setting_show(const char *text, size_t length, char *shown, size_t size);
/* "0..65535", "auto|cuda", "" for text. */
void xn_setting_range(const xn_setting *setting, char *text, size_t size);

#endif
