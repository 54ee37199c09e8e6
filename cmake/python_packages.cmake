# Folders in which Python's packages may be, those of the Python at work first: TESSERA_SITE_PACKAGES.
# NCCL, cuDNN and its frontend come as wheels too.
set(TESSERA_SITE_PACKAGES "")
foreach(root "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}")
  if(root)
    file(GLOB found ${root}/lib/python3*/site-packages)
    list(APPEND TESSERA_SITE_PACKAGES ${found})
  endif()
endforeach()
# Not cached: the chosen Python may change. Python3_EXECUTABLE names another one than PATH's first.
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
