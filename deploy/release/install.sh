#!/bin/sh
# Installs pnode from the files of a release, without root: checks the SHA-256 of what it downloads, and changes nothing before
# that has passed.
#
#   sh install.sh --from https://example.org/pnode/v0.1.0 [--prefix ~/.local]
#
# The address is that of the folder with the release's files; PNODE_FROM may hold it. file:///FOLDER takes files of this machine.
set -eu

say() { printf '%s\n' "$*"; }

# fail WHAT [REMEDY] ends the installation.
fail() {
  printf 'install.sh: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '%s\n' "$2" >&2
  exit 1
}

usage() {
  say "usage: sh install.sh --from ADDRESS [--prefix FOLDER]"
  say "  --from ADDRESS   of the folder with the release's files (default: the variable PNODE_FROM)"
  say "  --prefix FOLDER  install below it: bin/pnode, share/man, completions (default: ~/.local)"
}

# quote prints a path as one word of a shell.
quote() {
  case $1 in
  *[!a-zA-Z0-9/._+:,@%=-]*) printf "'%s'\n" "$(say "$1" | sed "s/'/'\\\\''/g")" ;;
  *) say "$1" ;;
  esac
}

# platform prints the system and processor as the files are named.
platform() {
  system=$(uname -s)
  machine=$(uname -m)
  case $system/$machine in
  Linux/x86_64 | Linux/amd64) say linux-amd64 ;;
  Linux/aarch64 | Linux/arm64) say linux-arm64 ;;
  Darwin/arm64) say darwin-arm64 ;;
  *) fail "there is no program for $system on $machine" "Releases have Linux on x86_64 and arm64, macOS on arm64 and Windows (the .zip). Elsewhere build it with Go: go build ./cmd/pnode" ;;
  esac
}

# download NAME fetches a file of the release into the working folder.
download() {
  case $from in
  file://*) cp "${from#file://}/$1" "$work/$1" 2>/dev/null && return ;;
  *)
    if command -v curl >/dev/null 2>&1; then
      curl -fsSL --retry 2 -o "$work/$1" "$from/$1" && return
    elif command -v wget >/dev/null 2>&1; then
      wget -q -O "$work/$1" "$from/$1" && return
    else
      fail "neither curl nor wget is here" "Install one of them, or download the files by hand and use --from file:///FOLDER"
    fi
    ;;
  esac
  fail "cannot download $from/$1" "Is --from (or PNODE_FROM) the address of the folder with the release's files, and is this machine online?"
}

# sum FILE prints its SHA-256.
sum() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1" | cut -d ' ' -f 1
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 "$1" | cut -d ' ' -f 1
  else
    fail "neither sha256sum nor shasum is here: the download cannot be checked" "Install one of them (coreutils, or perl)"
  fi
}

from=${PNODE_FROM:-}
prefix=
while [ $# -gt 0 ]; do
  case $1 in
  --from | --prefix)
    [ $# -ge 2 ] || fail "$1 has no value"
    if [ "$1" = --from ]; then from=$2; else prefix=$2; fi
    shift 2
    ;;
  --from=*) from=${1#*=} && shift ;;
  --prefix=*) prefix=${1#*=} && shift ;;
  -h | --help) usage && exit 0 ;;
  *)
    usage >&2
    fail "unknown argument $1"
    ;;
  esac
done
if [ -z "$from" ]; then
  usage >&2
  fail "nothing says where the release is" "Name the address of the folder with its files: --from ADDRESS, or PNODE_FROM=ADDRESS"
fi
case $from in
http://* | https://* | file:///*) ;;
*) fail "--from (or PNODE_FROM) $from is no address" "It begins with https:// or http://; a folder of this machine is file:///FOLDER" ;;
esac
from=${from%/}
if [ -z "$prefix" ]; then
  [ -n "${HOME:-}" ] || fail "HOME is not set" "Name a folder with --prefix"
  prefix=$HOME/.local
fi
case $prefix in
\~ | \~/*) # a shell leaves it in --prefix=~/FOLDER
  [ -n "${HOME:-}" ] || fail "HOME is not set" "Name the folder of --prefix in full"
  prefix=$HOME${prefix#\~}
  ;;
/*) ;;
*) prefix=$(pwd)/$prefix ;;
esac
prefix=${prefix%/}
new=$prefix/bin/.pnode.new

name=pnode-$(platform)
archive=$name.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"; rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM

download SHA256SUMS
want=$(awk -v name="$archive" '$2 == name {print $1}' "$work/SHA256SUMS")
[ -n "$want" ] || fail "SHA256SUMS of $from does not list $archive" "This release has nothing for this platform, or --from is the address of something else"
download "$archive"
got=$(sum "$work/$archive")
[ "$got" = "$want" ] || fail "$archive is not what SHA256SUMS says: SHA-256 $got, want $want" "Nothing was installed. Try again; if that stays, tell whoever runs $from"

umask 022 # others may use the folder, too
tar -xzf "$work/$archive" -C "$work" || fail "cannot unpack $archive"
mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions" "$prefix/share/zsh/site-functions" \
  "$prefix/share/fish/vendor_completions.d" "$prefix/share/doc/pnode" || fail "cannot write to $prefix" "Name a folder of yours with --prefix"
{ cp "$work/$name/pnode" "$new" && chmod 755 "$new"; } || fail "cannot write to $prefix/bin" "Name a folder of yours with --prefix"
version=$("$new" version) || fail "the program of $archive does not run in $prefix/bin" "What was there stays. Where programs may not run, name another folder with --prefix"
# A program that runs cannot be written over; its name can be given to another.
mv -f "$new" "$prefix/bin/pnode" || fail "cannot write $prefix/bin/pnode" "Name a folder of yours with --prefix"
cp "$work/$name"/man/man1/*.1 "$prefix/share/man/man1/"
cp "$work/$name/completions/pnode" "$prefix/share/bash-completion/completions/pnode"
cp "$work/$name/completions/_pnode" "$prefix/share/zsh/site-functions/_pnode"
cp "$work/$name/completions/pnode.fish" "$prefix/share/fish/vendor_completions.d/pnode.fish"
cp "$work/$name/LICENSE" "$work/$name/THIRD-PARTY-LICENSES" "$prefix/share/doc/pnode/"

say "installed $prefix/bin/pnode: $version"
found=$(command -v pnode 2>/dev/null || true)
run=pnode
if [ "$found" != "$prefix/bin/pnode" ]; then
  run=$(quote "$prefix/bin/pnode")
  if [ -n "$found" ]; then
    say "\`pnode\` is $found on your path. To have this one, put $prefix/bin first:"
  else
    say "$prefix/bin is not on your path. To have \`pnode\` found, say in this shell and in your shell's profile:"
  fi
  say "  export PATH=$(quote "$prefix/bin"):\"\$PATH\""
fi
say "Then:"
say "  $run doctor        # shows what this machine computes with"
say "  $run train         # trains a small model; Ctrl-C keeps what it learned"
say "  $run join INVITE   # joins a run"
