/* xnord-manual: what the daemon's table of settings (server/config/config_settings.c) is printed as
 * besides
 * --help, so that nothing of it is kept twice:
 *
 *   xnord-manual man     the manual page xnord(1)
 *   xnord-manual bash    the completion for bash */
#include "config_settings.h"

#include <stdio.h>
#include <string.h>

/* ---- the manual page ---- */

/* Text as roff reads it: a dash that can be copied, no backslash and no leading dot that it would
 * take for a request. */
static void put_roff(const char *text) {
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++)
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
}

/* "--flag ARGUMENT" as the head of a paragraph. */
static void put_head(const char *name, const char *argument) {
    fputs(".TP\n\\fB\\-\\-", stdout);
    put_roff(name);
    fputs("\\fR", stdout);
    if (*argument) {
        fputs(" \\fI", stdout);
        put_roff(argument);
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

static void put_line(const char *text) {
    put_roff(text);
    putchar('\n');
}

static void put_setting(const xn_setting *setting, const xn_config *defaults) {
    char value[XN_SETTING_TEXT_MAX], range[80], variable[XN_SETTING_ENV_MAX];
    xn_setting_format(setting, defaults, value);
    xn_setting_range(setting, range, sizeof range);
    xn_setting_environment(setting, variable);
    put_head(setting->name, setting->argument);
    put_line(setting->help);
    if (*range) {
        fputs("Accepted: ", stdout);
        put_roff(range);
        puts(".");
    }
    if (*value) {
        fputs("Default: ", stdout);
        put_roff(value);
        puts(".");
    }
    printf("Environment: \\fB%s\\fR.\n", variable);
}

static void put_options(void) {
    xn_config defaults;
    xn_config_default(&defaults);
    puts(".SH COMMANDS");
    for (int i = 0; i < xn_command_flag_count; i++) {
        put_head(xn_command_flags[i].name, xn_command_flags[i].argument);
        put_line(xn_command_flags[i].help);
    }
    puts(
        ".SH SETTINGS\n"
        "A flag stands over its environment variable, that over the configuration file, that over\n"
        "the default.\n"
        "The file has a line \\(lqflag = value\\(rq for each setting, the flag without its "
        "dashes,\n"
        "and comments after \\(oq#\\(cq.\n"
        "Bytes take K, M or G for powers of 1024.");
    for (int i = 0; i < xn_setting_count; i++) {
        if (!i || strcmp(xn_settings[i].group, xn_settings[i - 1].group))
            printf(".SS %s\n", xn_settings[i].group);
        put_setting(&xn_settings[i], &defaults);
    }
}

static const char before[] =
    ".SH NAME\n"
    "xnord \\- XNOR (1\\-bit) convolution over HTTP, on GPU and CPU\n"
    ".SH SYNOPSIS\n"
    ".B xnord\n"
    "[\\fB\\-\\-\\fIFLAG VALUE\\fR]...\n"
    ".br\n"
    ".B xnord\n"
    "\\fB\\-\\-check\\-config\\fR|\\fB\\-\\-list\\-devices\\fR [\\fB\\-\\-\\fIFLAG VALUE\\fR]...\n"
    ".SH DESCRIPTION\n"
    "xnord runs XNOR\\-Net convolution, the 1\\-bit convolution of binary neural networks, on\n"
    "NVIDIA GPUs, and on the CPU where there is none.\n"
    "A client posts a tensor and kernel weights to /conv and gets the output tensor back, with "
    "the\n"
    "time of every stage; or images to a trained network in a model folder, over the Open\n"
    "Inference Protocol.\n";

static const char after[] =
    ".SH SIGNALS\n"
    ".TP\n"
    "SIGTERM, SIGINT, SIGQUIT\n"
    "Drain: finish what was accepted, answer new work with 503, exit.\n"
    "A second one exits at once.\n"
    ".TP\n"
    "SIGHUP\n"
    "Open the log file anew, and read the keys, the certificate and the model repository anew.\n"
    ".SH EXIT STATUS\n"
    ".TP\n"
    "0\nServed and drained.\n"
    ".TP\n"
    "1\nCould not start, or the grace time was over before everything was finished.\n"
    ".TP\n"
    "2\nA setting is wrong; starting again does not help.\n"
    ".TP\n"
    "3\nA GPU was lost; a supervisor starts the daemon again.\n"
    ".TP\n"
    "130\nA second signal.\n"
    ".SH FILES\n"
    ".TP\n"
    "/etc/xnord/xnord.conf\n"
    "What the systemd unit reads.\n"
    ".SH EXAMPLES\n"
    ".EX\n"
    "xnord \\-\\-check\\-config \\-\\-config /etc/xnord/xnord.conf\n"
    "xnord \\-\\-model digits=deploy/demo/digits\n"
    "curl \\-s http://127.0.0.1:8080/conv \\-H \\(aqContent\\-Type: application/json\\(aq \\-d "
    "\\(aq{\n"
    "  \"input\":   {\"shape\": [1,1,1,3], \"datatype\": \"FP32\", \"data\": [1,\\-2,3]},\n"
    "  \"weights\": {\"shape\": [1,1,1,3], \"datatype\": \"FP32\", \"data\": [1,\\-1,1]}}\\(aq\n"
    ".EE\n"
    ".SH SEE ALSO\n"
    ".BR curl (1),\n"
    ".BR systemctl (1)\n";

static void print_man(void) {
    printf(".TH XNORD 1 \"%s\" \"xnord %s\" \"User Commands\"\n.nh\n.ad l\n", XN_DATE, XN_VERSION);
    fputs(before, stdout);
    put_options();
    fputs(after, stdout);
}

/* ---- bash ---- */

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static void put_case(const char *name, const char *argument, const char *choices) {
    if (ends_with(argument, "FILE")) {
        printf("    --%s) _xnord_offer -f ;;\n", name);
    } else if (ends_with(argument, "DIR")) {
        printf("    --%s) _xnord_offer -d ;;\n", name);
    } else if (choices) {
        printf("    --%s) _xnord_offer -W '", name);
        for (const char *c = choices; *c; c++)
            putchar(*c == '|' ? ' ' : *c);
        puts("' ;;");
    } else if (*argument) {
        printf("    --%s) ;; # %s\n", name, argument);
    }
}

static void print_bash(void) {
    puts("# Completion of xnord for bash, made from the daemon's table of settings.\n"
         "# shellcheck shell=bash\n"
         "_xnord_offer() { # compgen's arguments; for $cur\n"
         "    [[ $1 == -W ]] || compopt -o filenames\n"
         "    mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$cur\")\n"
         "}\n"
         "_xnord() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} given=\n"
         "    COMPREPLY=()\n"
         "    # \"--flag=value\" is three words to bash.\n"
         "    if [[ $cur == = ]]; then\n"
         "        cur='' given=1\n"
         "    elif [[ $flag == = ]]; then\n"
         "        flag=${COMP_WORDS[COMP_CWORD - 2]} given=1\n"
         "    fi\n"
         "    case $flag in");
    for (int i = 0; i < xn_command_flag_count; i++)
        put_case(xn_command_flags[i].name, xn_command_flags[i].argument, NULL);
    for (int i = 0; i < xn_setting_count; i++)
        if (xn_settings[i].kind != XN_SETTING_BOOL)
            put_case(xn_settings[i].name, xn_settings[i].argument, xn_settings[i].choices);
    puts("    *)\n"
         "        if [[ $given ]]; then\n"
         "            _xnord_offer -W 'true false'\n"
         "        else\n"
         "            _xnord_offer -W '");
    for (int i = 0; i < xn_command_flag_count; i++)
        printf("                --%s\n", xn_command_flags[i].name);
    for (int i = 0; i < xn_setting_count; i++)
        printf("                --%s\n", xn_settings[i].name);
    puts("            '\n"
         "        fi\n"
         "        ;;\n"
         "    esac\n"
         "}\n"
         "complete -F _xnord xnord");
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "man"))
        print_man();
    else if (argc == 2 && !strcmp(argv[1], "bash"))
        print_bash();
    else
        return fputs("usage: xnord-manual man|bash\n", stderr), 2;
    return ferror(stdout) || fclose(stdout) ? 1 : 0;
}
