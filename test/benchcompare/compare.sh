#!/usr/bin/env bash
# Compares the micro-benchmarks of two revisions of the repository in the current
# directory: those of BASE, and those of the working tree as it is. Both are built first,
# then they run in turns, and benchstat has the last word. See docs/performance.md.
#
#   BASE      the revision to compare with
#   PACKAGES  the packages, as directories: ./slots ./client
#   BENCH     which benchmarks, a regular expression (.)
#   COUNT     how many rounds (6); benchstat wants at least six
#   BENCHTIME how long each benchmark takes in a round (0.2s), or 1000x
#   TAGS      build tags
#   EXEC      what runs the programs, such as "bin/lab exec --"
#   KEEP      a directory for the results, base.txt and head.txt
set -euo pipefail

fail() {
	echo "bench-compare: $*" >&2
	exit 1
}

: "${BENCH:=.}" "${COUNT:=6}" "${BENCHTIME:=0.2s}" "${TAGS:=}" "${EXEC:=}" "${KEEP:=}" "${PACKAGES:=}"
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/go.mod
head=$(git rev-parse --show-toplevel) || fail "this is not a git repository"
[[ -n "${BASE:-}" ]] || fail "say what to compare with, for example: make bench-compare BASE=main"
commit=$(git -C "$head" rev-parse --verify --quiet "$BASE^{commit}") || fail "there is no revision $BASE in $head"
[[ "$COUNT" =~ ^[1-9][0-9]*$ ]] || fail "COUNT is \"$COUNT\", want a number from 1 on"
[[ -n "$PACKAGES" ]] || fail "PACKAGES names no package"

temp=$(mktemp -d "${TMPDIR:-/tmp}/bench-compare.XXXXXXXX")
trap 'rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir "$temp/base" "$temp/programs"
# The tree alone: nothing is left in the repository, whatever happens here.
git -C "$head" archive "$commit" | tar -x -C "$temp/base"

# build TREE NAME builds the tests of every package that TREE has.
build() {
	local tree=$1 name=$2 package
	for package in $PACKAGES; do
		[[ -d "$tree/$package" ]] || continue
		(cd "$tree" && go test -c ${TAGS:+-tags "$TAGS"} -o "$temp/programs/$name.${package//\//_}" "$package") ||
			fail "the tests of $package cannot be built in $name"
	done
}

# run TREE NAME PACKAGE runs the benchmarks of a package once. They run where the package
# is, as those of go test do.
run() {
	local tree=$1 name=$2 package=$3 program out
	program=$temp/programs/$name.${package//\//_}
	[[ -x "$program" ]] || return 0
	# shellcheck disable=SC2086 # EXEC is words
	out=$(cd "$tree/$package" && $EXEC "$program" -test.run '^$' -test.bench "$BENCH" -test.benchtime "$BENCHTIME" \
		-test.benchmem -test.timeout 10m 2>&1) || { echo "$out" >&2 && fail "the benchmarks of $package failed in $name"; }
	# Only what benchstat knows: to it, anything else with a colon is a setting, and results
	# after that are not compared with those before.
	grep -E '^(Benchmark|(goos|goarch|pkg|cpu): )' <<<"$out" >>"$temp/$name.txt" || true
}

for package in $PACKAGES; do
	[[ -d "$head/$package" ]] || fail "there is no package $package"
	[[ -d "$temp/base/$package" ]] || echo "bench-compare: $BASE has no $package" >&2
done
build "$temp/base" base
build "$head" head
touch "$temp/base.txt" "$temp/head.txt"
for ((round = 1; round <= COUNT; round++)); do
	echo "bench-compare: round $round of $COUNT" >&2
	for package in $PACKAGES; do
		# Each is the first one in every other round.
		if ((round % 2)); then
			run "$temp/base" base "$package"
			run "$head" head "$package"
		else
			run "$head" head "$package"
			run "$temp/base" base "$package"
		fi
	done
done
grep -q '^Benchmark' "$temp/head.txt" || fail "no benchmark in $PACKAGES matches $BENCH"
if [[ -n "$KEEP" ]]; then
	mkdir -p "$KEEP"
	cp "$temp/base.txt" "$temp/head.txt" "$KEEP"
fi
grep -q '^Benchmark' "$temp/base.txt" || echo "bench-compare: $BASE has none of these benchmarks" >&2
go tool -modfile="$tools" benchstat "base=$temp/base.txt" "head=$temp/head.txt"
