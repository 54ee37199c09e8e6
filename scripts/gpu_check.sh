#!/usr/bin/env bash
# Checks and measures this machine's GPU: scripts/gpu_check.sh --help, docs/gpu-check.md.
exec "${PYTHON:-python3}" -X utf8 -B "$(dirname "${BASH_SOURCE[0]}")/gpu_check/main.py" "$@"
