/* SPDX-License-Identifier: BSD-2-Clause */
/* Is this a build with a sanitizer? It brings an allocator of its own, watches us from a process and starts a symbolizer. */
#ifndef BASE_SANITIZE_H
#define BASE_SANITIZE_H

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif
#if HAS_ASAN || defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

#endif
