// SPDX-License-Identifier: Apache-2.0
/* CPU detection: CPUID and XGETBV on x86-64, the kernel's hardware capabilities on AArch64.
 * Decides nothing; the registry does. */
#include "kernels/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static ftki_cpu cpu;

static void word(bool present, const char *name) {
    if (!present || strlen(cpu.features) + strlen(name) + 2 > sizeof cpu.features) return;
    if (cpu.features[0]) strcat(cpu.features, " ");
    strcat(cpu.features, name);
}

#if defined(__x86_64__)
static uint64_t xgetbv0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static void detect(void) {
    uint32_t a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    bool osxsave = c & (1u << 27), fma = c & (1u << 12), f16c = c & (1u << 29);
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) b7 = c7 = 0;
    /* XCR0: SSE and AVX state are bits 1 and 2; opmask and ZMM state are bits 5 to 7. */
    uint64_t saved = osxsave ? xgetbv0() : 0;
    bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
    bool avx2 = b7 & (1u << 5), vnni = c7 & (1u << 11);
    bool avx512 = (b7 & (1u << 16)) && (b7 & (1u << 17)) && (b7 & (1u << 30)) && (b7 & (1u << 31));
    cpu.avx2 = ymm && avx2 && fma && f16c;
    cpu.avx512 = cpu.avx2 && zmm && avx512 && vnni;
    word(ymm && avx2, "avx2");
    word(ymm && fma, "fma");
    word(ymm && f16c, "f16c");
    word(zmm && avx512, "avx512");
    word(zmm && vnni, "vnni");
}
#elif defined(__aarch64__) && defined(__linux__)
/* Bits of AT_HWCAP and AT_HWCAP2 as Linux defines them; spelled out for older headers. */
enum { CAP_ASIMD = 1 << 1, CAP_FPHP = 1 << 9, CAP_ASIMDHP = 1 << 10, CAP_DOTPROD = 1 << 20 };
enum { CAP2_I8MM = 1 << 13 };

static void detect(void) {
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    bool half = (cap & CAP_FPHP) && (cap & CAP_ASIMDHP);
    cpu.neon = (cap & CAP_ASIMD) && half && (cap & CAP_DOTPROD);
    cpu.i8mm = cpu.neon && (cap2 & CAP2_I8MM);
    word(cap & CAP_ASIMD, "asimd");
    word(half, "fp16");
    word(cap & CAP_DOTPROD, "dotprod");
    word(cap2 & CAP2_I8MM, "i8mm");
}
#else
static void detect(void) {}
#endif

static void detect_once(void) {
    detect();
    if (!cpu.features[0]) word(true, "none");
}

const ftki_cpu *ftki_cpu_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect_once);
    return &cpu;
}

const char *ftki_cpu_features(void) { return ftki_cpu_get()->features; }
