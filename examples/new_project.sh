#!/usr/bin/env bash
# new_project.sh NAME [FOLDER]: makes a project of your own from examples/template.
#
# NAME is the program's: letters, digits, - and _. FOLDER, by default ./NAME, must not exist yet. The project uses
# looptorch in this checkout as long as that is there; without it, or with -DLOOPTORCH_SOURCE=, an installed one.
set -euo pipefail

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

case ${1-} in
  --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
  '' | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
[ $# -le 2 ] || fail "too many words: new_project.sh NAME [FOLDER]"
name=$1 folder=${2:-$1}
[[ $name =~ ^[A-Za-z][A-Za-z0-9_-]*$ ]] || fail "'$name' is no name for a program: letters, digits, - and _, a letter first"
# Targets that CMake, its generators, looptorch and LibTorch's packages have.
[[ ! $name =~ ^(all|clean|depend|help|install|test|package|package_source|edit_cache|rebuild_cache|list_install_components)$ &&
   ! $name =~ ^(looptorch|torch|c10|caffe2|tensorpipe|protobuf|gflags|glog|dummy|headeronly|cuda_target)(_.*)?$ ]] ||
  fail "CMake, looptorch or LibTorch may have a target $name already: choose another name"
while [[ $folder == ?*/ ]]; do folder=${folder%/}; done
[ ! -e "$folder" ] || fail "$folder exists already"
[[ $folder != -* ]] || folder=./$folder
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)

mkdir -p -- "$(dirname -- "$folder")"
partial=$folder.partial.$$
trap 'rm -rf -- "$partial"' EXIT
mkdir -- "$partial"
cp -- "$root"/examples/template/{train.cpp,CMakeLists.txt,CMakePresets.json} "$partial"
sed -i "s|template_train|$name|g" "$partial"/{train.cpp,CMakeLists.txt}
source=$(printf '%s' "$root" | sed 's/[\\"$]/\\&/g' | sed 's/[\\&|]/\\&/g') # in CMake's quotes, and in sed's replacement
sed -i "s|^set(LOOPTORCH_SOURCE \"\"|set(LOOPTORCH_SOURCE \"$source\"|" "$partial/CMakeLists.txt"
mv -T -- "$partial" "$folder"

cat <<END
Made $folder. Build and run it:

  eval "\$($(printf %q "$root")/packaging/setup.sh)"
  cd $(printf %q "$folder")
  cmake --preset release && cmake --build --preset release
  build/$name --output run
END
