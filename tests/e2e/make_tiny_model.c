// SPDX-License-Identifier: Apache-2.0
/* Writes one tiny random model, or one that recites, to a file, for tests of programs:
 *   make_tiny_model --arch gemma3 --layers 7 --type Q4_0 --seed 3 out.gguf
 *   make_tiny_model --recite "one| two| three" out.gguf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e/tiny_model.h"

static const char usage[] =
    "make_tiny_model [flags] OUT.gguf\n"
    "  --arch llama|qwen2|qwen3|gemma3   --layers N  --heads N  --kv-heads N  --head-dim N\n"
    "  --hidden N  --ffn N  --vocab N  --context N  --window N  --seed N\n"
    "  --type F32|F16|BF16|Q8_0|Q4_0|Q4_1|Q5_0|Q5_1|Q4_K|Q5_K|Q6_K\n"
    "  --rope plain|linear|yarn|llama3   --untied  --spm  --no-template  --no-end\n"
    "  --recite PIECE|PIECE...  (tokens the model says one after another; --loop: again and again)\n";

/* Position of `value` in the NULL-ended list, -1: none. */
static int find(const char *value, const char *const *list) {
    for (int i = 0; list[i]; i++)
        if (strcmp(value, list[i]) == 0) return i;
    return -1;
}

static bool write_reciter(char *pieces, bool loop, const char *path) {
    const char *list[64];
    size_t n = 0;
    for (char *p = strtok(pieces, "|"); p && n < sizeof list / sizeof *list; p = strtok(NULL, "|")) list[n++] = p;
    tiny_gguf g;
    tiny_reciter(&g, list, n, loop);
    bool written = tiny_gguf_write(&g, path);
    tiny_gguf_free(&g);
    return written;
}

int main(int argc, char **argv) {
    static const char *const types[] = {"F32",  "F16",  "BF16", "Q8_0", "Q4_0", "Q4_1",
                                        "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", NULL};
    static const ftki_type numbers[] = {FTKI_F32,  FTKI_F16,  FTKI_BF16, FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_1,
                                        FTKI_Q5_0, FTKI_Q5_1, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K};
    static const char *const ropes[] = {"plain", "linear", "yarn", "llama3", NULL};
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3", NULL};
    tiny_opts o = {0};
    const char *path = NULL;
    char *recite = NULL;
    bool loop = false;
    struct {
        const char *name;
        int32_t *value;
    } counts[] = {{"--layers", &o.layers}, {"--heads", &o.heads},   {"--kv-heads", &o.kv_heads},
                  {"--head-dim", &o.head_dim}, {"--hidden", &o.hidden}, {"--ffn", &o.ffn},
                  {"--vocab", &o.vocab},   {"--context", &o.context}, {"--window", &o.window}};
    struct {
        const char *name;
        bool *value;
    } switches[] = {{"--untied", &o.untied}, {"--spm", &o.spm}, {"--no-template", &o.no_template},
                    {"--no-end", &o.no_end}, {"--loop", &loop}};
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool known = false;
        for (size_t k = 0; k < sizeof switches / sizeof *switches; k++)
            if (strcmp(flag, switches[k].name) == 0) known = *switches[k].value = true;
        if (known) continue;
        if (flag[0] != '-') {
            path = flag;
            continue;
        }
        i++;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            if (strcmp(flag, counts[k].name) == 0) known = (*counts[k].value = atoi(value)) > 0;
        if (strcmp(flag, "--recite") == 0 && i < argc) known = true, recite = argv[i];
        if (strcmp(flag, "--seed") == 0) known = true, o.seed = strtoull(value, NULL, 10);
        int found;
        if (strcmp(flag, "--type") == 0 && (found = find(value, types)) >= 0)
            known = true, o.type = numbers[found];
        if (strcmp(flag, "--rope") == 0 && (found = find(value, ropes)) >= 0)
            known = true, o.rope = (tiny_rope)found;
        if (strcmp(flag, "--arch") == 0 && (found = find(value, archs)) >= 0)
            known = true, o.arch = archs[found];
        if (!known) {
            fprintf(stderr, "make_tiny_model: %s %s is not understood\n%s", flag, value, usage);
            return 2;
        }
    }
    if (!path) {
        fputs(usage, stderr);
        return 2;
    }
    if (!(recite ? write_reciter(recite, loop, path) : tiny_model_write(&o, path))) {
        perror(path);
        return 1;
    }
    return 0;
}
