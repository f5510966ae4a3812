#!/usr/bin/env bash
# Makes a project of your own from examples/template: new_project.sh NAME [FOLDER]
#
# NAME is the program's: letters, digits, - and _. FOLDER, by default ./NAME, must not exist yet. The project finds
# looptorch in this checkout until it is installed.
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
[[ ! $name =~ ^(all|clean|help|install|test|package|looptorch|torch)$ ]] || fail "CMake or LibTorch has a target $name already"
[ ! -e "$folder" ] || fail "$folder exists already"
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

mkdir -p -- "$(dirname -- "$folder")"
partial=$folder.partial.$$
trap 'rm -rf -- "$partial"' EXIT
mkdir -- "$partial"
cp -- "$root"/examples/template/{train.cpp,CMakeLists.txt,CMakePresets.json} "$partial"
sed -i "s|template_train|$name|g" "$partial"/{train.cpp,CMakeLists.txt}
sed -i "s|^set(LOOPTORCH_SOURCE \"\"|set(LOOPTORCH_SOURCE \"$root\"|" "$partial/CMakeLists.txt"
mv -T -- "$partial" "$folder"

cat <<END
Made $folder. Build and run it:

  eval "\$($root/packaging/setup.sh)"
  cd $folder
  cmake --preset release && cmake --build --preset release
  build/$name --output run
END
