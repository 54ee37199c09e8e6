#!/usr/bin/env bash
# Runs mpirun on one machine: also as root, in a container, and with more ranks than processors.
#
#   scripts/mpirun.sh -n 4 build/release/tools/tessera train --strategy zero3 ...
#
# All arguments go to mpirun. MPIEXEC overrides the mpirun in PATH. The settings below are for Open
# MPI; MPICH needs none of them.
set -euo pipefail

if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Ranks may share processors: allow more ranks than processors, bind none, and yield while waiting.
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none}
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
# In a container one process may not be allowed to read another's memory.
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
exec "${MPIEXEC:-mpirun}" "$@"
