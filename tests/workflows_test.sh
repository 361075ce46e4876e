#!/bin/sh
# workflows_test.sh: actionlint on .github/workflows. Exit code 77: skipped, where there is no Go to build it with.
set -eu
cd "$(dirname "$0")/.."
command -v go >/dev/null || { echo "workflows_test: skipped: no go" && exit 77; }
exec go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes= .github/workflows/*.yml
