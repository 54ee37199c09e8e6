# NCCL, for the CUDA module: TESSERA_NCCL_INCLUDE, TESSERA_NCCL_LIBRARY and `nccl_version`, the
# header's version. Searches `cuda_root`, Python's wheel (TESSERA_SITE_PACKAGES) and the system.
include(${CMAKE_CURRENT_LIST_DIR}/one_root.cmake)
# The wheel has no libnccl.so, and no linker searches its folder.
set(nccl_wheels "${TESSERA_SITE_PACKAGES}")
list(TRANSFORM nccl_wheels APPEND /nvidia/nccl)
tessera_find_in_one_root(NCCL HEADER nccl.h NAMES nccl libnccl.so.2 ROOTS ${cuda_root} ${nccl_wheels})

# The first version whose header declares the functions that register arenas.
set(nccl_needed 2.19)
set(nccl_version "")
if(TESSERA_NCCL_INCLUDE)
  file(STRINGS ${TESSERA_NCCL_INCLUDE}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" number "${line}")
    list(APPEND nccl_version ${number})
  endforeach()
  list(JOIN nccl_version "." nccl_version)
endif()
