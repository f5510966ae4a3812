# shellcheck shell=bash disable=SC2154
# Installs what runs Python's side of the LibTorch in use: torchrun, and a Python that imports torch.

readonly torchrun_needs=typing-extensions==4.16.0 # all that torch's launcher imports beside torch
readonly export_needs=(filelock==4.3.1 mpmath==1.3.0 networkx==3.4.2 sympy==1.14.0) # and torch.export

# Puts a torchrun of the LibTorch in use on the PATH: torch's launcher with what it imports, without torch's own script,
# whose Python lacks that.
install_torchrun() {
  local site=$torch_config/../../../.. program
  [ -e "$site/torch/distributed/run.py" ] || {
    have torchrun || fail "the LibTorch in $torch_config is no Python package and so brings no torchrun; put one on the PATH"
    exports+=("LOOPTORCH_TORCHRUN=$(command -v torchrun)")
    return
  }
  site=$(cd -- "$site" && pwd)
  make_environment "$cache/torchrun"
  install_python_packages "$torchrun_needs"
  program=$cache/torchrun/of-$(printf '%s' "$site" | sha256sum | cut -c1-12)/torchrun
  exports+=("LOOPTORCH_TORCHRUN=$program")
  add_to_path "${program%/*}"
  ! torchrun_program "$site" | cmp -s - "$program" || return 0
  mkdir -p "${program%/*}"
  torchrun_program "$site" >"$program.partial"
  chmod +x "$program.partial"
  watched torchrun "$program.partial" --help || failed "torchrun does not start; see Python's words above"
  mv "$program.partial" "$program"
}

torchrun_program() { # torchrun_program SITE-PACKAGES; changes no variable that the started programs would see
  cat <<PYTHON
#!$venv/bin/python -Wignore
import sys
sys.path.append("$1")
from torch.distributed.run import main
main()
PYTHON
}

# Names a Python that imports the torch of the LibTorch in use, and torch.export: tests read with it what C++ exported.
install_torch_python() {
  local site=$torch_config/../../../.. program
  [ -e "$site/torch/export/__init__.py" ] || return 0
  site=$(cd -- "$site" && pwd)
  make_environment "$cache/torchrun"
  install_python_packages "$torchrun_needs" "${export_needs[@]}"
  program=$cache/torchrun/python-of-$(printf '%s' "$site" | sha256sum | cut -c1-12)
  exports+=("LOOPTORCH_TORCH_PYTHON=$program")
  ! torch_python_program "$site" | cmp -s - "$program" || return 0
  torch_python_program "$site" >"$program.partial"
  chmod +x "$program.partial"
  mv "$program.partial" "$program"
}

torch_python_program() { # torch_python_program SITE-PACKAGES
  cat <<SHELL
#!/bin/sh
PYTHONPATH=$1\${PYTHONPATH:+:\$PYTHONPATH} exec "$venv/bin/python" -Wignore "\$@"
SHELL
}
