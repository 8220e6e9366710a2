# Sourced by the other scripts: makes a virtual environment and keeps it until pyproject.toml changes.
# shellcheck shell=bash

# Of 25,000 modules of an environment, most are never imported: those that are compile on import, and are kept.
unset PYTHONDONTWRITEBYTECODE

# Print a Python >= 3.11: $PYTHON if it is set, else the first that fits.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
        if [ -n "${PYTHON:-}" ]; then
            break
        fi
    done
    echo "error: ${PYTHON:-no python3 on PATH} is not Python 3.11 or newer; set PYTHON to one that is" >&2
    return 1
}

# named_pythons: print the versions that pyproject.toml names.
named_pythons() {
    sed -n 's/^ *"Programming Language :: Python :: \(3\.[0-9]*\)",$/\1/p' pyproject.toml
}

# versioned_python VERSION: print an interpreter of that version (3.12, say); fail if there is none.
versioned_python() {
    local candidate pyenv
    pyenv=${PYENV_ROOT:-$(pyenv root 2>/dev/null || printf '%s\n' "${HOME:-}/.pyenv")}
    # A command on PATH may be a pyenv shim without an interpreter, so each candidate is run.
    for candidate in "python$1" "$pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c 'import sys, venv, ensurepip
sys.exit("{}.{}".format(*sys.version_info) != sys.argv[1])' "$1" >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# make_environment DIRECTORY GROUP...: install this checkout (editable) with the dependency groups. With WHEEL=1, install
# a wheel of it, which has compiled kernels, again after every change of the sources; with GROUPS_ONLY=1, only the groups.
make_environment() {
    local directory=$1 python stamp group install=(-e '.[jit]')
    shift
    python=$(find_python)
    stamp=$("$python" -c 'import hashlib, os, pathlib, sys
paths = [pathlib.Path("pyproject.toml"), pathlib.Path("hatch_build.py")]
if os.environ.get("WHEEL"):
    paths += sorted(path for folder in ("gzarr", "kernels") for path in pathlib.Path(folder).rglob("*.py"))
digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
print(sys.version, os.getcwd(), digest, *sys.argv[1:])' "$@")
    # The kernels of an editable installation are compiled on first use.
    local kernels=0
    if [ -n "${WHEEL:-}" ]; then
        install=(.)
        kernels=
    elif [ -n "${GROUPS_ONLY:-}" ]; then
        install=()
    fi
    if [ -f "$directory/stamp" ] && [ "$(cat "$directory/stamp")" = "$stamp" ]; then
        return
    fi
    echo "making $directory with $("$python" --version)" >&2
    rm -rf "$directory"
    "$python" -m venv "$directory"
    # --group needs pip 25.1.
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --upgrade 'pip>=25.1'
    local groups=()
    for group in "$@"; do
        groups+=(--group "$group")
    done
    GZARR_BUILD_KERNELS=$kernels "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --no-compile ${install[@]+"${install[@]}"} "${groups[@]}"
    printf '%s\n' "$stamp" > "$directory/stamp"
}

# make_wheel FOLDER: make a wheel of this checkout, with compiled kernels, in FOLDER/wheel-DIGEST, unless it is there, and
# print its path. Beside it, "kernels" has what was compiled.
make_wheel() {
    local python folder
    python=$(find_python)
    # shellcheck disable=SC2046
    folder=$1/wheel-$(cat pyproject.toml hatch_build.py ci/project.py README.md $(find gzarr kernels -name '*.py' | sort) |
        sha256sum | cut -c 1-16)
    if ! ls "$folder"/*.whl >/dev/null 2>&1; then
        echo "making a wheel, which takes two or three minutes" >&2
        rm -rf "$1"/wheel-*
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-input --no-deps --wheel-dir "$folder" . >&2
    fi
    if [ ! -d "$folder/kernels" ]; then
        "$python" - "$folder" <<'END'
import pathlib, shutil, sys, zipfile
folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(*folder.glob("*.whl")) as wheel:
    inside = [name for name in wheel.namelist() if name.startswith("gzarr_kernels/compiled_kernels/")]
    wheel.extractall(folder / "unpacked", inside)
(folder / "unpacked" / "gzarr_kernels" / "compiled_kernels").rename(folder / "kernels")
shutil.rmtree(folder / "unpacked")
END
    fi
    ls "$folder"/*.whl
}
