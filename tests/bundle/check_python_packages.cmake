# cmake/python_packages.cmake searches the wheels of the active Python first. Needs SOURCE_DIR,
# WORK_DIR.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${WORK_DIR})
function(expect_first folder)
  include(${SOURCE_DIR}/cmake/python_packages.cmake)
  list(GET TESSERA_SITE_PACKAGES 0 first)
  if(NOT first STREQUAL folder)
    message(FATAL_ERROR "the first folder is ${first}, not ${folder}")
  endif()
endfunction()

set(ENV{VIRTUAL_ENV} "")
set(ENV{CONDA_PREFIX} "")
# The first python3 on the path prints its own folder.
set(packages ${WORK_DIR}/python/lib/site-packages)
file(WRITE ${WORK_DIR}/bin/python3 "#!/bin/sh\necho '${packages}'\n")
file(CHMOD ${WORK_DIR}/bin/python3 PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(ENV{PATH} "${WORK_DIR}/bin:$ENV{PATH}")
expect_first(${packages})

# A Python that is named takes precedence.
set(packages ${WORK_DIR}/named/lib/site-packages)
set(Python3_EXECUTABLE ${WORK_DIR}/named/python)
file(WRITE ${Python3_EXECUTABLE} "#!/bin/sh\necho '${packages}'\n")
file(CHMOD ${Python3_EXECUTABLE} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
expect_first(${packages})

foreach(variable CONDA_PREFIX VIRTUAL_ENV)
  set(packages ${WORK_DIR}/${variable}/lib/python3.9/site-packages)
  file(MAKE_DIRECTORY ${packages})
  set(ENV{${variable}} ${WORK_DIR}/${variable})
  expect_first(${packages})
endforeach()
