#!/bin/sh
# launch.sh COMMAND...: how ctest runs a test.
root=$(dirname "$0")/..

# What made_models.py writes stands in for ../shared where that has no models, in tests that say so (situ_shared).
if [ -n "${SITU_MADE_MODELS:-}" ] && [ ! -d "${SITU_SHARED:-$root/../shared}/models" ]; then
  export SITU_SHARED="$SITU_MADE_MODELS"
fi

# On one CPU that no other test has, where one is left, unless SITU_ALL_CPUS is set. Threads of tests side by side wait for each
# other else (cli_test and models_test: 40 s at once, 23 and 19 s by themselves). CTest's own property PROCESSOR_AFFINITY does
# nothing where CMake is linked with a system's libuv, as Debian's is.
folder=$root/build/cpus
if [ -z "${SITU_ALL_CPUS:-}" ] && command -v taskset >/dev/null && command -v flock >/dev/null && mkdir -p "$folder"; then
  for range in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr , ' '); do
    for cpu in $(seq "${range%-*}" "${range#*-}"); do
      exec 9>"$folder/$cpu"
      if flock -n 9; then
        exec taskset -c "$cpu" "$@"
      fi
    done
  done
fi
exec "$@"
