# Sets TESSERA_SITE_PACKAGES to the folders that may hold Python packages, the active Python's first.
# NCCL, cuDNN and its frontend are also distributed as wheels.
set(TESSERA_SITE_PACKAGES "")
foreach(root "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}")
  if(root)
    file(GLOB found ${root}/lib/python3*/site-packages)
    list(APPEND TESSERA_SITE_PACKAGES ${found})
  endif()
endforeach()
# Not cached: the active Python may change. Python3_EXECUTABLE overrides the first python3 in PATH.
if(Python3_EXECUTABLE)
  set(python ${Python3_EXECUTABLE})
else()
  find_program(python python3 NO_CACHE)
endif()
if(python)
  execute_process(
    COMMAND ${python} -c "import sys; print(';'.join(p for p in sys.path if p.endswith('-packages')))"
    OUTPUT_VARIABLE found ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND TESSERA_SITE_PACKAGES ${found})
endif()
file(GLOB found /usr/local/lib/python3*/*-packages /usr/lib/python3*/*-packages
  /opt/*/lib/python3*/site-packages $ENV{HOME}/.pyenv/versions/*/lib/python3*/site-packages
  $ENV{HOME}/.local/lib/python3*/site-packages)
list(APPEND TESSERA_SITE_PACKAGES ${found})
list(REMOVE_DUPLICATES TESSERA_SITE_PACKAGES)
