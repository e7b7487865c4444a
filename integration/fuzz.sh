#!/usr/bin/env bash
# Fuzzes every decoder of the product, one target after another.
#
#   integration/fuzz.sh              10 CPU-minutes for each target, the bar of the project
#   integration/fuzz.sh 5            5 CPU-seconds each: a smoke test
#   integration/fuzz.sh 600 ./tier/...                 the targets of some packages
#   FUZZ='FuzzHead|FuzzPage' integration/fuzz.sh 60 ./tier   some targets
#   FUZZ_CACHE=DIR                   where new inputs are kept (default: Go's build cache);
#                                    what is worth keeping goes to testdata/fuzz by hand
#
# It prints one line for each target: CPU seconds spent (the process that
# mutates and the one that runs the target), executions, inputs that reached new
# code, and the result. A target runs until it has had its CPU time, so a busy
# machine takes longer and tests as much. It ends with 1 when a target failed;
# Go has then written the failing input to the package's testdata/fuzz, and
# `go test -run TARGET/NAME` repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v go >/dev/null || export PATH=$PATH:/usr/local/go/bin

seconds=${1:-600}
shift || true
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3-; exit 2; }
[ $# -gt 0 ] || set -- ./...
cache=${FUZZ_CACHE:-$(go env GOCACHE)/fuzz}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# fuzz PACKAGE TARGET DIRECTORY: rounds of one target until its CPU time is spent.
fuzz() {
  local used=0 execs=0 new=0 left result=ok out=$work/out n
  while left=$(awk -v s="$seconds" -v u="$used" 'BEGIN { l = s - u; print (l >= 1 || u == 0) ? int(l + 0.5) : 0 }') && [ "$left" -gt 0 ]; do
    (cd "$3" || exit 1
      "$work/bin.test" -test.run='^$' -test.fuzz="^$2\$" -test.fuzztime="${left}s" -test.parallel=1 \
        -test.fuzzcachedir="$cache/$1" -test.timeout=0 </dev/null >"$out" 2>&1
      code=$?
      times >"$work/times" # the second line: user and system time of all children
      exit $code) || result=FAILED
    used=$(awk -v u="$used" 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "m"); u += 60 * t[1] + t[2] } } END { print u }' "$work/times")
    n=$(grep -oE 'execs: [0-9]+' "$out" | tail -1 | cut -d' ' -f2 || true)
    execs=$((execs + ${n:-0}))
    n=$(grep -oE 'new interesting: [0-9]+' "$out" | tail -1 | cut -d' ' -f3 || true)
    new=$((new + ${n:-0}))
    # Go sometimes reports the end of the time itself as a failure, without an input.
    if [ $result != ok ] && grep -q 'context deadline exceeded' "$out" && ! grep -qE 'Failing input|panic|fuzzing process' "$out"; then
      result=ok
    fi
    [ $result = ok ] || break
  done
  printf '%-18s %-22s %8.1f %11d %6d  %s\n' "${1#*/varve/}" "$2" "$used" "$execs" "$new" "$result"
  if [ $result != ok ]; then
    failed=1
    sed 's/^/    /' "$out" | tail -40
  fi
}

printf '%-18s %-22s %8s %11s %6s  %s\n' package target 'CPU s' execs new result
while read -r package dir; do
  targets=$(cd "$dir" && grep -hoE '^func Fuzz[A-Za-z0-9_]*' ./*_test.go | cut -d' ' -f2 | grep -E "^(${FUZZ:-.*})\$" | sort || true)
  [ -n "$targets" ] || continue
  go test -c -fuzz=Fuzz -o "$work/bin.test" "$package"
  listed=$("$work/bin.test" -test.list '^Fuzz')
  for target in $targets; do
    grep -qx "$target" <<<"$listed" || continue
    fuzz "$package" "$target" "$dir"
  done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@")
exit $failed
