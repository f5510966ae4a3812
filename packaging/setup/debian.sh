# shellcheck shell=bash
# Installs the Debian packages that are missing.

usable_compiler() {
  local -a compiler
  read -r -a compiler <<<"${CXX:-c++}"
  printf '%s\n' '#include <concepts>' 'static_assert(__cpp_concepts >= 201907L);' |
    "${compiler[@]}" -std=c++20 -x c++ -fsyntax-only - >/dev/null 2>&1
}

usable_cmake() {
  have cmake && printf '%s\n' 3.25 "$(cmake --version | awk 'NR == 1 { print $3 }')" | sort --version-sort --check=quiet
}

usable_python() { python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

has_sndfile() { any_file {/usr,/usr/local}/include/sndfile.h || named_config SndFileConfig.cmake >/dev/null; }

has_catch2() {
  any_file {/usr,/usr/local}/{lib,lib/*,share}/cmake/Catch2/Catch2Config.cmake ||
    named_config Catch2Config.cmake >/dev/null
}

# Prints one line a missing package. A package from elsewhere counts if the build will find it.
missing_debian_packages() {
  usable_compiler || echo g++
  usable_cmake || echo cmake
  usable_python || printf '%s\n' python3 python3-venv
  has_sndfile || echo libsndfile1-dev
  has_catch2 || echo catch2
  have ninja || echo ninja-build
  have ccache || echo ccache
  have espeak-ng || echo espeak-ng
  have sox || echo sox
  [ -z "${distributed-}" ] || any_file {/usr,/usr/local}/include/gloo/algorithm.h || echo libgloo-dev
}

install_debian_packages() {
  local -a missing as_root
  mapfile -t missing < <(missing_debian_packages)
  [ ${#missing[@]} -gt 0 ] || return 0

  say "Installing Debian packages: ${missing[*]}"
  local by_hand="run as an administrator: apt-get install ${missing[*]}"
  have apt-get || fail "there is no apt-get; install what Debian calls ${missing[*]} with this system's package manager," \
                       "and run this again"
  become_root || fail "installing Debian packages needs root or sudo; $by_hand"
  need_space /usr 2
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get)
  watched "apt-get update" "${as_root[@]}" update ||
    failed "apt-get update failed; check the network and /etc/apt, or $by_hand"
  watched "apt-get install" "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" ||
    failed "apt-get install failed; check the network and /etc/apt, or $by_hand"

  mapfile -t missing < <(missing_debian_packages)
  [ ${#missing[@]} = 0 ] ||
    fail "this distribution's ${missing[*]} will not do; looptorch needs a C++20 compiler, CMake 3.25 and Python 3.10," \
         "as in Debian bookworm"
}

become_root() { # sets as_root; sudo may ask for the password on a terminal
  as_root=()
  [ "$(id -u)" != 0 ] || return 0
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo -n)
  have sudo && "${as_root[@]}" true >&2
}
