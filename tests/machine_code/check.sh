#!/usr/bin/env bash
# Checks what scripts/kernel_loops.py and scripts/kernel_facts.sh read from machine code, with the
# disassembly of a made-up kernel in place of cuobjdump's: a loop of 16-byte accesses whose slow path
# calls a function.
set -euo pipefail

scratch=$1
rm -rf "$scratch"
mkdir -p "$scratch"
cat >"$scratch/cuobjdump" <<'TOOL'
#!/usr/bin/env bash
if [[ $1 == --dump-resource-usage ]]; then
  cat <<'TEXT'
arch = sm_90
 Function _ZN7tessera7kernels4cuda6scaledEPf:
  REG:24 STACK:0 SHARED:128 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
TEXT
  exit 0
fi
cat <<'TEXT'
	code for sm_90
		Function : _ZN7tessera7kernels4cuda6scaledEPf
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   FMUL R4, R4, R8 ;
        /*0030*/                   MUFU.EX2 R5, R5 ;
        /*0040*/                   ISETP.GE.AND P1, PT, R0, R9, PT ;
        /*0050*/              @P1  BRA 0x80 ;
        /*0060*/                   CALL.REL.NOINC 0xb0 ;
        /*0070*/                   BRA 0x80 ;
        /*0080*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0090*/              @P0  BRA 0x10 ;
        /*00a0*/                   EXIT ;
        /*00b0*/                   STL [R1], R6 ;
        /*00c0*/                   RET.REL.NODEC R20 0x0 ;
TEXT
TOOL
printf '#!/bin/sh\n' >"$scratch/nvdisasm"
chmod +x "$scratch"/{cuobjdump,nvdisasm}
export PATH=$scratch:$PATH

# is COMMAND LINE: the command's output has the line.
is() {
  local output
  output=$($1 2>&1) || true
  grep -qxF -- "$2" <<<"$output" && return
  printf '%s printed\n%s\nwithout the line\n%s\n' "$1" "$output" "$2"
  exit 1
}
# 7 instructions for 32 bytes: the call is not on the way. 128 lanes issue, so 32 x 128 / 7 is no
# bound, but the 16 special lanes are: 32 x 16 / 1. Accesses of 16 bytes take four clocks each:
# 32 x 32 / 8.
is "scripts/kernel_loops.py module" \
  "| \`scaled\` | 0x10 | 32 | 7 | 0 | 1 | 2 | 0 | 1 | 2 | 1 | 0 | 128.0 (lsu) |"
is "scripts/kernel_loops.py --path module" "00030   MUFU.EX2 R5, R5"
is "scripts/kernel_loops.py --kernels other module" \
  "| kernel | loop | bytes | all | fp64 | xu | lsu | imad | fp32 | other | int | spilled | bytes per clock |"
is "scripts/kernel_facts.sh module" "| \`scaled\` | sm_90 | 24 | 1 | 128 | 16 x 1 | 16 x 1 |"
PATH=/usr/bin:/bin
if ! command -v cuobjdump >/dev/null; then
  is "python3 scripts/kernel_loops.py module" "kernel_loops: cuobjdump is not in PATH"
fi
echo "the instructions of loops, registers and accesses are read right"
