# shellcheck shell=bash disable=SC2154
# Installs Python packages into virtual environments in the cache. `venv` is the last one that make_environment has made.

make_environment() { # make_environment FOLDER: a virtual environment with pip
  venv=$1
  ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || return 0
  say "Making a virtual environment in $venv"
  rm -rf "$venv" "$venv.partial"
  watched "python3 -m venv" python3 -m venv "$venv.partial" || failed "python3 -m venv failed; install python3-venv"
  mv "$venv.partial" "$venv"
}

pip() { # runs pip in the environment; writes nothing outside the cache
  mkdir -p "$cache/tmp"
  TMPDIR=$cache/tmp "$venv/bin/python" -m pip --disable-pip-version-check --no-input --no-cache-dir "$@"
}

fetch() { # fetch PACKAGE PIP-ARGUMENTS...: with pip's own bar on a terminal
  local package=$1 status=0
  shift
  if [ -t 2 ]; then
    pip "$@" >&2 2>"$log" || status=$?
  else
    watched "$package" pip "$@" --quiet --progress-bar off || status=$?
  fi
  [ $status = 0 ] || failed "could not get $package: $(why_pip_failed)"
}

why_pip_failed() {
  if grep -q 'No space left' "$log"; then
    echo "the disk is full; free some space, or name another folder in LOOPTORCH_CACHE"
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    echo "the file differs from the one that looptorch pins; run this again, and report it if it stays so"
  elif grep -Eq 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError' "$log"; then
    echo "the package index cannot be reached; check the network and pip's settings (pip config list), then run this again"
  elif grep -q 'No matching distribution' "$log"; then
    echo "the package index has none for this machine; Linux on x86-64 with Python 3.10 to 3.14 is needed"
  else
    echo "see pip's words above, and run this again"
  fi
}

# Prints one line a package that is not completely installed: pip's own record lists each file with its size.
incomplete_packages() {
  "$venv/bin/python" - "$@" <<'PYTHON'
import csv, os, re, sys, sysconfig

site = sysconfig.get_path("platlib")

def whole(name, version):
    record = os.path.join(site, f"{re.sub('[-.]+', '_', name)}-{version}.dist-info", "RECORD")
    try:
        with open(record, newline="") as rows:
            return all(os.stat(os.path.join(site, path)).st_size == int(size)
                       for path, _, size in csv.reader(rows) if size)
    except (OSError, ValueError):
        return False

for package in sys.argv[1:]:
    if not whole(*package.split("==")):
        print(package)
PYTHON
}

# Installs one package after the other, so that an interrupted run continues and the disk holds only one wheel.
install_python_packages() {
  local -a missing
  local package number=0
  mapfile -t missing < <(incomplete_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Getting ${#missing[@]} Python package(s) into $venv"
  [ ${#missing[@]} -le 5 ] || need_space "$cache" 6
  for package in "${missing[@]}"; do
    number=$((number + 1))
    detail "[$number/${#missing[@]}] ${package/==/ }"
    fetch "${package/==/ }" install --no-deps --no-compile --ignore-installed "$package"
  done
  mapfile -t missing < <(incomplete_packages "$@")
  [ ${#missing[@]} = 0 ] || fail "${missing[*]} did not install whole; check the disk, remove $venv and run this again"
}
