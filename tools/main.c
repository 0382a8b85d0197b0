// SPDX-License-Identifier: Apache-2.0
/* The program freetoken: picks the sub-command. Everything it does is in cmd_*.c. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "freetoken/freetoken.h"
#include "interrupt.h"
#include "ui.h"

static const struct {
    const char *name, *summary;
    command_fn call;
} commands[] = {
#define COMMAND_ROW_(name, summary) {#name, summary, cmd_##name},
    COMMAND_LIST(COMMAND_ROW_)
#undef COMMAND_ROW_
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int print_overview(void)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    printf("FreeToken %s: language models on plain CPUs.\n\n%sUsage:%s freetoken COMMAND [WORDS] [FLAGS]\n\n",
           ftk_version(), bold, plain);
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %s%-9s%s %s\n", bold, commands[i].name, plain, commands[i].summary);
    printf("\n%sFirst steps:%s\n"
           "  freetoken pull                                   bring the default model (94 MB)\n"
           "  freetoken run                                    chat with it\n"
           "  freetoken run -f report.txt -p \"What is it about?\"  ask about a document\n"
           "\nfreetoken help COMMAND shows flags and examples; freetoken --version the version.\n"
           "Exit status: 0 done, 1 failed, 2 wrong use, 130 interrupted.\n",
           bold, plain);
    return STATUS_OK;
}

static command_fn find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].call;
    return NULL;
}

static int refuse_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *near = args_nearest(name, names, N_COMMANDS);
    if (near) return args_refuse(NULL, "%s: no such command: did you mean %s?", name, near);
    return args_refuse(NULL, "%s: no such command", name);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_overview();
        return STATUS_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("freetoken %s\n", ftk_version());
        return STATUS_OK;
    }
    bool help = strcmp(word, "help") == 0;
    if (help ? argc == 2 : strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_overview();
    command_fn call = find_command(help ? argv[2] : word);
    if (!call) return refuse_command(help ? argv[2] : word);
    char flag[] = "--help", *ask[] = {flag};
    return help ? call(1, ask) : call(argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    /* Characters for the line editor; numbers and messages stay as they are. */
    if (!setlocale(LC_CTYPE, "") || strcmp(setlocale(LC_CTYPE, NULL), "C") == 0) setlocale(LC_CTYPE, "C.UTF-8");
    interrupt_install();
    int status = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == STATUS_OK) {
        ui_error("the output could not be written: %s", strerror(errno));
        status = STATUS_FAILURE;
    }
    return status;
}
