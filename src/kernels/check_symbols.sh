#!/bin/sh
# check_symbols.sh ISA OBJECT...: the objects of one ISA define nothing outside of situ::ISA. An inline function of a
# shared header that was compiled for AVX-512 could otherwise be the copy that the linker keeps for every CPU.
isa=$1
shift
leaks=$(nm --defined-only -C "$@" | grep -E '^[0-9a-f]* [A-SU-Zuvw] |^[0-9a-f]* T ' |
  grep -vE " situ::$isa::| (typeinfo|vtable|guard variable) (name )?for situ::$isa::| DW\.ref\.")
[ -z "$leaks" ] && exit 0
echo "symbols of $isa outside of its namespace:"
echo "$leaks"
exit 1
