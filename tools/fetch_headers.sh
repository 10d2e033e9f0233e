#!/bin/sh
# Puts headers that building needs into a virtual environment, without root, where the distribution's
# packages aren't installed: Python.h (python3-dev), and CL/cl.h where pip has no wheel with it.
#   tools/fetch_headers.sh .venv
# Debian and Ubuntu only (apt-get download). tools/build_paths.py looks there.
set -eu
venv=$1

fetch() {
  echo "Fetching $1 into $venv/headers"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  if ! (cd "$folder" && apt-get download -qq "$1"); then
    echo "Could not fetch $1: install it (or your distribution's package with $2), then run this again." >&2
    exit 1
  fi
  dpkg-deb -x "$folder"/*.deb "$venv/headers"
  rm -rf "$folder"
}

missing=$("$venv/bin/python" "$(dirname "$0")/build_paths.py" --missing)
case $missing in *Python.h*)
  fetch "$("$venv/bin/python" -c 'import sys; print("libpython%d.%d-dev" % sys.version_info[:2])')" Python.h
esac
case $missing in *CL/cl.h*)
  fetch opencl-c-headers CL/cl.h
esac
