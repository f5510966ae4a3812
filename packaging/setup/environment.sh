# shellcheck shell=bash
# What the machine has, and what of it the exports name.
#
#   have PROGRAM             whether it is on the PATH
#   any_file PATTERN...      whether one of the patterns names a file
#   named_config FILE        prints the folder of a package config that CMAKE_PREFIX_PATH names; fails if there is none
#   add_to_path FOLDER       puts it before `path`, the PATH of the exports
#   add_prefix FOLDER        puts it before `prefix_path`, the CMAKE_PREFIX_PATH of the exports
#
# `exports` has the other exports, VARIABLE=VALUE each.

have() { command -v "$1" >/dev/null 2>&1; }

any_file() {
  local pattern
  for pattern; do
    ! compgen -G "$pattern" >/dev/null || return 0
  done
  return 1
}

named_config() { # named_config TorchConfig.cmake
  local package=${1%Config.cmake} prefix folder
  local -a prefixes
  IFS=: read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    for folder in "$prefix" "$prefix/$package" "$prefix"/{share,lib,lib64}/cmake/"$package"; do
      [ -n "$prefix" ] && [ -e "$folder/$1" ] && echo "$folder" && return
    done
  done
  return 1
}

add_to_path() {
  case ":$path:" in
    *":$1:"*) ;;
    *) path=$1:$path ;;
  esac
}

add_prefix() {
  case ":$prefix_path:" in
    *":$1:"*) ;;
    *) prefix_path=$1${prefix_path:+:$prefix_path} ;;
  esac
}
