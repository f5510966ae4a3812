// SPDX-License-Identifier: MIT
// Stands for a precompiled header. Its object holds the code of that header, see clang_instead.sh.
