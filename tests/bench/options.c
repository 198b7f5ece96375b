/* options.c: see options.h. */
#include "options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* "--name" or "--name=value"; value: behind the sign, or NULL. */
static const xn_option *find(const char *word, const xn_option *options, int count,
                             const char **value) {
    const size_t length = strcspn(word, "=");
    *value = word[length] ? word + length + 1 : NULL;
    for (int i = 0; i < count; i++)
        if (!strncmp(word, "--", 2) && strlen(options[i].name) == length - 2 &&
            !strncmp(word + 2, options[i].name, length - 2))
            return &options[i];
    return NULL;
}

static bool take(const xn_option *option, const char *value) {
    char *end = NULL;
    switch (option->kind) {
    case XN_OPTION_FLAG:
        *(bool *)option->to = true;
        return true;
    case XN_OPTION_TEXT:
        *(const char **)option->to = value;
        return true;
    case XN_OPTION_TEXTS: {
        xn_texts *all = option->to;
        if (all->count == XN_TEXTS)
            return false;
        all->text[all->count++] = value;
        return true;
    }
    case XN_OPTION_COUNT: {
        const long count = strtol(value, &end, 10);
        *(int *)option->to = (int)count;
        return *value && !*end && count >= 0 && count <= INT32_MAX;
    }
    case XN_OPTION_NUMBER:
        *(double *)option->to = strtod(value, &end);
        return *value && !*end && *(double *)option->to >= 0;
    case XN_OPTION_SEED:
        *(uint64_t *)option->to = strtoull(value, &end, 0);
        return *value && !*end;
    }
    return false;
}

bool xn_options_parse(int argc, char **argv, const xn_option *options, int count, char ***rest) {
    int i = 2;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value;
        const xn_option *option = find(argv[i], options, count, &value);
        if (!option) {
            fprintf(stderr, "bench: %s: no such option; help lists all\n", argv[i]);
            return false;
        }
        if (option->kind != XN_OPTION_FLAG && !value && ++i < argc)
            value = argv[i];
        if ((option->kind == XN_OPTION_FLAG) != !value || !take(option, value)) {
            fprintf(stderr, "bench: --%s %s: expected %s: %s\n", option->name, value ? value : "",
                    *option->argument ? option->argument : "no value", option->help);
            return false;
        }
    }
    *rest = argv + (i < argc ? i + 1 : argc);
    return true;
}

void xn_options_help(FILE *out, const xn_option *options, int count) {
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s %s", options[i].name, options[i].argument);
        fprintf(out, "  %-22s %s\n", name, options[i].help);
    }
}
