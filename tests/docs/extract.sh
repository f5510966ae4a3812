#!/usr/bin/env bash
# extract.sh OUTPUT_FOLDER FILE.md...: turns the ```cpp blocks of Markdown files into sources that compile.
#
#   ```cpp                statements: each block becomes a function, all in fragments.cpp after prelude.hpp; what
#                         prelude.hpp declares (Net, Batch, net, optimizer, ...) may be used without a word
#   ```cpp declarations   types and functions at namespace scope, in fragments.cpp too; blocks after it in the same
#                         Markdown file see them
#   ```cpp header NAME    declarations that also become the file NAME, so that a test can run what the page shows
#   ```cpp distributed    statements like the first, in distributed.cpp: they need looptorch::distributed
#   ```cpp program        a whole program: program_<n>.cpp, and, in a namespace of its own, part of programs.cpp
#   ```cpp from FILE      quotes FILE of the repository, which must hold these lines as they are
#
# Errors point at the line of the Markdown file. Prints the sources written, one a line.
set -euo pipefail

output=$1
shift
rm -f "$output"/program_*.cpp "$output"/programs.cpp "$output"/distributed.cpp
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
awk -v output="$output" -v root="$root" '
  function line_directive() { return "#line " (FNR + 1) " \"" FILENAME "\"" }
  function text_of(file,   line, text) {
    text = "\n"
    while ((getline line < file) > 0) text = text line "\n"
    close(file)
    return text
  }
  BEGIN { body = ""; includes = ""; programs = 0; blocks = 0; scope = "" }
  FNR == 1 && scope != "" { body = body "}\n" }
  FNR == 1 { scope = "file_" (++files); body = body "namespace docs::" scope " {\n" }
  !kind && /^```cpp/ {
    kind = $2 == "" ? "statements" : $2
    start = FILENAME ":" FNR
    if (kind == "statements") body = body "void block_" (++blocks) "() {\n" line_directive() "\n"
    else if (kind == "declarations") body = body line_directive() "\n"
    else if (kind == "header" && NF == 3) { header = output "/" $3; print line_directive() > header; body = body "#include \"" $3 "\"\n" }
    else if (kind == "distributed") ranks = ranks "void block_" (++blocks) "() {\n" line_directive() "\n"
    else if (kind == "program") {
      program = output "/program_" (++programs) ".cpp"
      print line_directive() > program
      together = together "namespace docs::program_" programs " {\n" line_directive() "\n"
    }
    else if (kind == "from" && NF == 3) { quoted = $3; quote = "" }
    else { print start ": ```cpp " kind " is none of ```cpp, ```cpp distributed, ```cpp declarations, ```cpp header NAME, ```cpp program, ```cpp from FILE" > "/dev/stderr"; exit failed = 1 }
    next
  }
  kind && /^```[ \t]*$/ {
    if (kind == "statements") body = body "}\n"
    if (kind == "distributed") ranks = ranks "}\n"
    if (kind == "program") { close(program); together = together "}\n" }
    if (kind == "header") close(header)
    if (kind == "from" && (quote == "" || !index(text_of(root "/" quoted), "\n" quote))) {
      print start ": " quoted " does not hold these lines" > "/dev/stderr"; exit failed = 1
    }
    kind = ""
    next
  }
  kind == "program" { print > program }
  kind == "program" && /^#include/ { of_programs = of_programs $0 "\n"; together = together "\n"; next }
  kind == "program" { together = together $0 "\n"; next }
  kind == "from" { quote = quote $0 "\n"; next }
  kind == "header" { print > header; next }
  kind == "distributed" && /^#include/ { of_ranks = of_ranks $0 "\n"; ranks = ranks "\n"; next }
  kind == "distributed" { ranks = ranks $0 "\n"; next }
  kind && /^#include/ { includes = includes $0 "\n"; body = body "\n"; next }
  kind { body = body $0 "\n" }
  END {
    if (failed) exit 1
    if (kind) { print start ": the block does not end" > "/dev/stderr"; exit 1 }
    if (scope != "") body = body "}\n"
    printf "#include \"prelude.hpp\"\n%s%s", includes, body > (output "/fragments.cpp")
    if (programs) printf "%s%s", of_programs, together > (output "/programs.cpp")
    if (ranks != "") printf "#include \"prelude.hpp\"\n%snamespace docs {\n%s}\n", of_ranks, ranks > (output "/distributed.cpp")
  }' "$@"
printf '%s\n' "$output"/fragments.cpp
compgen -G "$output/program*.cpp" || true
compgen -G "$output/distributed.cpp" || true
