# shellcheck shell=bash disable=SC2154
# Installs Conan, by which the tests make looptorch's package.

readonly conan=conan==2.34.0

install_conan() {
  make_environment "$cache/${conan/==/-}"
  exports+=("LOOPTORCH_CONAN=$venv/bin/conan")
  ! "$venv/bin/conan" --version >/dev/null 2>&1 || return 0
  say "Getting Conan into $venv"
  fetch "${conan/==/ }" install --no-compile "$conan"
}
