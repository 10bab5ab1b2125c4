// SPDX-License-Identifier: Apache-2.0
//
// The one export beside the hooks. A program that gcc built with the address sanitizer refuses to start when any other library
// comes before the sanitizer's own, as a preloaded one does; this option is how it is told that all is well.

const char *__asan_default_options(void);

__attribute__((visibility("default"), weak)) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }
