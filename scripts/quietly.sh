# Sourced by scripts, which define `fail MESSAGE`.
# quietly LOG COMMAND...: its output, which goes to the file LOG, is shown if it fails
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || fail "$*: $(tail -n 30 "$log")"
}
