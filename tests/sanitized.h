// SPDX-License-Identifier: Apache-2.0
/* SANITIZED: built with the address or thread sanitizer, by gcc or clang; their memory and time are
 * not what a test is to measure or limit. */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#endif
