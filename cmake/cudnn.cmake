# cuDNN's fused attention, for the CUDA module: sets TESSERA_HAS_CUDNN, TESSERA_CUDNN_INCLUDES and
# TESSERA_CUDNN_LIBRARIES. Looks for the library and its header-only frontend in the system, in the
# toolkit and in Python's wheels.
set(TESSERA_HAS_CUDNN OFF)
set(TESSERA_CUDNN_INCLUDES "")
set(TESSERA_CUDNN_LIBRARIES "")
set(TESSERA_CUDNN_PROBLEM "TESSERA_CUDNN is OFF")  # why cuDNN is not used
if(TESSERA_CUDNN STREQUAL "OFF")
  return()
endif()

set(cudnn_wheels "${TESSERA_SITE_PACKAGES}")
list(TRANSFORM cudnn_wheels APPEND /nvidia/cudnn)
find_path(TESSERA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
  HINTS ${TESSERA_CUDNN_FRONTEND} ${TESSERA_BUNDLE}
  ${PROJECT_SOURCE_DIR}/third_party/cudnn-frontend ${cuda_root}
  ${TESSERA_SITE_PACKAGES} PATH_SUFFIXES include)
include(${CMAKE_CURRENT_LIST_DIR}/one_root.cmake)
tessera_find_in_one_root(CUDNN HEADER cudnn.h NAMES cudnn libcudnn.so.9
  ROOTS ${cuda_root} ${cudnn_wheels})
mark_as_advanced(TESSERA_CUDNN_FRONTEND_INCLUDE)

# Sets `result` to the number that `header` defines `name` as; 0 if it does not define it.
function(tessera_defined_number header name result)
  set(number 0)
  if(EXISTS ${header})
    file(STRINGS ${header} line REGEX "^#define ${name} +[0-9]+")
    if(line MATCHES "${name} +([0-9]+)")
      set(number ${CMAKE_MATCH_1})
    endif()
  endif()
  set(${result} ${number} PARENT_SCOPE)
endfunction()

set(cudnn_problem "")
if(NOT TESSERA_CUDNN_INCLUDE OR NOT TESSERA_CUDNN_LIBRARY)
  set(cudnn_problem "cuDNN was not found (cudnn.h, libcudnn.so.9; in the toolkit, the system's \
folders, or Python's nvidia-cudnn)")
elseif(NOT TESSERA_CUDNN_FRONTEND_INCLUDE)
  set(cudnn_problem "cuDNN's frontend was not found (cudnn_frontend.h: fetch Python's \
nvidia-cudnn-frontend with scripts/install_deps.sh, or name its folder with \
TESSERA_CUDNN_FRONTEND)")
else()
  set(version_header ${TESSERA_CUDNN_INCLUDE}/cudnn_version.h)
  tessera_defined_number(${version_header} CUDNN_MAJOR major)
  tessera_defined_number(${version_header} CUDNN_MINOR minor)
  tessera_defined_number(${version_header} CUDNN_PATCHLEVEL patch)
  set(cudnn_version ${major}.${minor}.${patch})
  set(version_header ${TESSERA_CUDNN_FRONTEND_INCLUDE}/cudnn_frontend_version.h)
  tessera_defined_number(${version_header} CUDNN_FRONTEND_MAJOR_VERSION major)
  tessera_defined_number(${version_header} CUDNN_FRONTEND_MINOR_VERSION minor)
  if(cudnn_version VERSION_LESS 9.15.1 OR NOT cudnn_version VERSION_LESS 10)
    set(cudnn_problem "cuDNN ${cudnn_version} in ${TESSERA_CUDNN_INCLUDE} cannot be used: version 9 is \
needed, 9.15.1 or later")
  elseif("${major}.${minor}" VERSION_LESS 1.16 OR NOT major EQUAL 1)
    set(cudnn_problem "cuDNN's frontend ${major}.${minor} in ${TESSERA_CUDNN_FRONTEND_INCLUDE} cannot be \
used: version 1 is needed, 1.16 or later")
  endif()
endif()
if(cudnn_problem)
  if(NOT TESSERA_CUDNN STREQUAL "AUTO")
    message(FATAL_ERROR "TESSERA_CUDNN is ${TESSERA_CUDNN}, but ${cudnn_problem}. To build without cuDNN, \
configure with -DTESSERA_CUDNN=OFF")
  endif()
  string(REPLACE ";" "," TESSERA_CUDNN_PROBLEM "${cudnn_problem}")  # as text, not a list
  message(STATUS "Without cuDNN: ${cudnn_problem}")
  return()
endif()
tessera_warn_of_two_roots(cuDNN ${TESSERA_CUDNN_INCLUDE} ${TESSERA_CUDNN_LIBRARY}
  "name others with TESSERA_CUDNN_INCLUDE and TESSERA_CUDNN_LIBRARY")
set(TESSERA_HAS_CUDNN ON)
set(TESSERA_CUDNN_INCLUDES ${TESSERA_CUDNN_FRONTEND_INCLUDE} ${TESSERA_CUDNN_INCLUDE})
set(TESSERA_CUDNN_LIBRARIES ${TESSERA_CUDNN_LIBRARY})
if(CUDA_nvrtc_LIBRARY)  # newer frontends refer to it, for their own engines
  list(APPEND TESSERA_CUDNN_LIBRARIES ${CUDA_nvrtc_LIBRARY})  # its target links the driver too
endif()
