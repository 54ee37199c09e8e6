#!/usr/bin/env bash
# Starts a job of N processes on this machine, joined by NCCL, as torchrun would. With fewer GPUs
# than processes they share them: NCCL refuses that for processes of one host, so each gets its own
# host name (NCCL_HOSTID), and data goes through loopback sockets. Such a job shows whether several
# ranks work; its times mean nothing.
#
#   scripts/nccl_one_gpu.sh -n N [-g] [-p FILE] PROGRAM [ARGUMENT...]
#
# With -g each process takes the GPU of its rank, and all have one host name: data goes directly
# between this machine's GPUs, and times count. -p writes a line "RANK PROCESS" for each process to
# FILE. The status is 0, or that of the first process that failed; the others then have GRACE_S (1)
# seconds to exit. MASTER_PORT and the job's secret (TESSERA_JOB_SECRET) are chosen if they are not
# set.
set -u

if [[ ${1-} != -n || ! ${2-} =~ ^[1-9][0-9]*$ || $# -lt 3 ]]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
ranks=$2
shift 2
own_gpus=no
if [[ $1 == -g && $# -gt 1 ]]; then
  own_gpus=yes
  shift
fi
list=/dev/null
if [[ $1 == -p && $# -gt 2 ]]; then
  list=$2
  shift 2
fi
: > "$list" || exit 2

is_free() {
  ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null
}

if [[ -z ${MASTER_PORT-} ]]; then
  MASTER_PORT=$((20000 + RANDOM % 12000))
  until is_free "$MASTER_PORT"; do MASTER_PORT=$((20000 + RANDOM % 12000)); done
fi
export MASTER_PORT MASTER_ADDR=127.0.0.1 WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks
if [[ -z ${TESSERA_JOB_SECRET-} ]]; then
  TESSERA_JOB_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')
fi
export TESSERA_JOB_SECRET
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME-lo}
host=${NCCL_HOSTID-one-gpu}

# Keeps the shell from reporting processes that are killed.
exec 4<&0 5>&2 2> /dev/null
declare -A processes=()
for ((rank = 0; rank < ranks; rank++)); do
  input=/dev/null
  ((rank > 0)) || input=/dev/fd/4
  host_id=(NCCL_HOSTID="$host-$rank")
  if [[ $own_gpus == yes ]]; then host_id=(); fi
  env RANK="$rank" LOCAL_RANK="$rank" "${host_id[@]}" "$@" < "$input" 4<&- 2>&5 5>&- &
  processes[$!]=$rank
  echo "$rank $!" >> "$list"
done
exec 4<&-

end_all() {
  ((${#processes[@]} == 0)) || kill "-$1" "${!processes[@]}" 2> /dev/null
}
trap 'end_all KILL; exit 143' TERM INT

# A process that has ended remains as a zombie until it is waited for.
has_ended() {
  local line
  read -r line < "/proc/$1/stat" || return 0
  [[ ${line##*) } == Z* ]]
}

status=0
ends=
while ((${#processes[@]} > 0)); do
  if [[ -n $ends ]] && ((SECONDS >= ends)); then
    end_all KILL
  fi
  for process in "${!processes[@]}"; do
    has_ended "$process" || continue
    wait "$process"
    ended=$?
    if ((ended != 0 && status == 0)); then
      status=$ended
      ends=$((SECONDS + 1 + ${GRACE_S-1}))
    fi
    if ((ended > 128)) && [[ -z $ends || $SECONDS -lt $ends ]]; then
      echo "rank ${processes[$process]} was ended by signal $((ended - 128))" >&5
    fi
    unset "processes[$process]"
  done
  sleep 0.05
done
exit "$status"
