# To be sourced: checks that run one after another.
#
# Every check runs, even after a failure; the exit code is 1 if any failed. What failed is said once more at the end, where
# thousands of lines of later checks do not hide it.
status=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
check() {
    local name=$1 failed=
    shift
    echo "== $name"
    # In a group the shell itself starts tee, and knows its process.
    { "$@"; } > >(tee "$logs/last") 2>&1 || failed=1
    copied "${!:-}"
    if [ -n "$failed" ]; then
        echo "== $name: FAILED"
        {
            echo "== $name: FAILED"
            if grep -Eq '^=+ (FAILURES|ERRORS) =+$' "$logs/last"; then
                sed -En '/^=+ (FAILURES|ERRORS) =+$/,$p' "$logs/last" |
                    sed -E '/^=+ warnings summary/,/^-- Docs: /d' | tail -n 200
            else
                tail -n 40 "$logs/last"
            fi
        } >>"$logs/failed"
        status=1
    fi
}
# Waits until tee has written all: not for ever, as a process that a check has left behind may still hold its pipe.
copied() {
    local turn
    for turn in {1..50}; do
        if [ -z "$1" ] || ! kill -0 "$1" 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
}
# tests PYTHON ARGUMENT...: run pytest. What fails is run once more, alone: tests of interrupts, kills and time limits may
# fail where others keep the processors busy. What passes only then is said at the end: a fault to mend, of gzarr or of
# the test.
tests() {
    local python=$1 status=0 ids failed=.pytest_cache/v/cache/lastfailed
    shift
    rm -f "$failed"
    "$python" -m pytest "$@" || status=$?
    if [ "$status" -ne 1 ] || [ ! -f "$failed" ]; then
        return "$status"
    fi
    ids=$("$python" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' "$failed")
    if [ "$(wc -l <<<"$ids")" -gt 5 ]; then
        return "$status"
    fi
    echo "== Once more, alone:"
    "$python" -m pytest -n 0 --last-failed || return
    sed 's/^/   /' <<<"$ids" >>"$logs/unstable"
}
finish() {
    if [ -f "$logs/unstable" ]; then
        echo "== What failed, and passed alone:"
        cat "$logs/unstable"
    fi
    if [ "$status" -ne 0 ]; then
        echo "== What failed:"
        cat "$logs/failed"
    fi
    exit "$status"
}
# The types of all public names are known to basedpyright, too. Those that are of PyTorch have types only where it is
# installed.
check_public_types() {
    local bin=$1
    if "$bin/python" -c 'import torch' 2>/dev/null; then
        check "types of public names" env PATH="$bin:$PATH" "$bin/basedpyright" --verifytypes gzarr --ignoreexternal
    else
        echo "== types of public names: PyTorch is not installed here, NOT TESTED"
    fi
}
