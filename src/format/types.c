// SPDX-License-Identifier: Apache-2.0
/* The tensor types of GGUF: one traits row per type we read, and the names of the others for
 * messages. */
#include "format/gguf.h"

static const ftki_type_info readable[] = {
    {FTKI_F32, "F32", 1, 4},      {FTKI_F16, "F16", 1, 2},      {FTKI_BF16, "BF16", 1, 2},
    {FTKI_Q4_0, "Q4_0", 32, 18},  {FTKI_Q4_1, "Q4_1", 32, 20},  {FTKI_Q5_0, "Q5_0", 32, 22},
    {FTKI_Q5_1, "Q5_1", 32, 24},  {FTKI_Q8_0, "Q8_0", 32, 34},  {FTKI_Q4_K, "Q4_K", 256, 144},
    {FTKI_Q5_K, "Q5_K", 256, 176},{FTKI_Q6_K, "Q6_K", 256, 210},
};

static const char *const names[] = {
    [0] = "F32",      [1] = "F16",      [2] = "Q4_0",     [3] = "Q4_1",    [4] = "Q4_2",
    [5] = "Q4_3",     [6] = "Q5_0",     [7] = "Q5_1",     [8] = "Q8_0",    [9] = "Q8_1",
    [10] = "Q2_K",    [11] = "Q3_K",    [12] = "Q4_K",    [13] = "Q5_K",   [14] = "Q6_K",
    [15] = "Q8_K",    [16] = "IQ2_XXS", [17] = "IQ2_XS",  [18] = "IQ3_XXS",[19] = "IQ1_S",
    [20] = "IQ4_NL",  [21] = "IQ3_S",   [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",
    [25] = "I16",     [26] = "I32",     [27] = "I64",     [28] = "F64",    [29] = "IQ1_M",
    [30] = "BF16",    [31] = "Q4_0_4_4",[32] = "Q4_0_4_8",[33] = "Q4_0_8_8",[34] = "TQ1_0",
    [35] = "TQ2_0",   [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8",
    [39] = "MXFP4",
};

const ftki_type_info *ftki_type_find(uint32_t type) {
    for (size_t i = 0; i < sizeof readable / sizeof readable[0]; i++)
        if ((uint32_t)readable[i].type == type) return &readable[i];
    return NULL;
}

const char *ftki_type_name_of(uint32_t type) {
    if (type < sizeof names / sizeof names[0] && names[type] != NULL) return names[type];
    return "unknown";
}
