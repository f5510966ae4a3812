// SPDX-License-Identifier: MIT
// The object of this file is made from a precompiled header. It has the code of the header's functions and
// templates, which all other files then do not compile (clang_instead.sh).
