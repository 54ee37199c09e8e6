# Finds libtorch: Debian's libtorch-dev, or the folder TESSERA_TORCH_ROOT, which may be that of a
# Python wheel (site-packages/torch) or an unpacked libtorch. This file is read when Tessera is
# built and, installed beside tesseraConfig.cmake, when its component torch is used. Both must find
# the same version: every version lays out its classes differently.
set(TESSERA_TORCH_ROOT "" CACHE PATH "Folder of libtorch (include/, lib/), if it is not found automatically")
set(TESSERA_TORCH_CUDA "AUTO" CACHE STRING "Link libtorch's CUDA part: OFF, or AUTO (if it has one)")
set_property(CACHE TESSERA_TORCH_CUDA PROPERTY STRINGS AUTO OFF)

# Defines tessera::libtorch, and sets TESSERA_LIBTORCH_VERSION and TESSERA_LIBTORCH_HAS_CUDA. Sets
# `problem` to what is wrong, or to nothing. `version` is the version to find; empty: any.
function(tessera_find_libtorch version problem)
  set(${problem} "" PARENT_SCOPE)
  set(header torch/csrc/api/include/torch/torch.h)
  # Forgets what was found in another folder.
  if(NOT "${TESSERA_TORCH_ROOT}" STREQUAL "${TESSERA_TORCH_FOUND_IN}")
    unset(TESSERA_TORCH_INCLUDE CACHE)
    foreach(library c10 torch torch_cpu c10_cuda torch_cuda cudart)
      unset(TESSERA_TORCH_${library} CACHE)
    endforeach()
  endif()
  set(TESSERA_TORCH_FOUND_IN "${TESSERA_TORCH_ROOT}" CACHE INTERNAL "")
  set(where "")
  if(TESSERA_TORCH_ROOT)
    set(where PATHS ${TESSERA_TORCH_ROOT} NO_DEFAULT_PATH)
  endif()
  find_path(TESSERA_TORCH_INCLUDE ${header} ${where} PATH_SUFFIXES include)
  mark_as_advanced(TESSERA_TORCH_INCLUDE)
  set(missing "")
  if(NOT TESSERA_TORCH_INCLUDE)
    list(APPEND missing "torch/torch.h")
  endif()
  foreach(library c10 torch torch_cpu)
    find_library(TESSERA_TORCH_${library} ${library} ${where} PATH_SUFFIXES lib)
    mark_as_advanced(TESSERA_TORCH_${library})
    if(NOT TESSERA_TORCH_${library})
      list(APPEND missing lib${library}.so)
    endif()
  endforeach()
  set(advice "install it (Debian: libtorch-dev), or name the folder of a libtorch, or of the Python \
package torch, with -DTESSERA_TORCH_ROOT")
  if(missing)
    list(JOIN missing ", " missing)
    if(TESSERA_TORCH_ROOT)
      set(${problem} "libtorch was not found in ${TESSERA_TORCH_ROOT} (${missing}); ${advice}" PARENT_SCOPE)
    else()
      set(${problem} "libtorch was not found (${missing}); ${advice}" PARENT_SCOPE)
    endif()
    return()
  endif()

  set(found "")
  foreach(file torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${TESSERA_TORCH_INCLUDE}/${file} AND NOT found)
      file(READ ${TESSERA_TORCH_INCLUDE}/${file} text)
      if(text MATCHES "TORCH_VERSION_MAJOR ([0-9]+)")
        set(found ${CMAKE_MATCH_1})
        if(text MATCHES "TORCH_VERSION_MINOR ([0-9]+)")
          string(APPEND found .${CMAKE_MATCH_1})
        endif()
      endif()
    endif()
  endforeach()
  if(version AND found AND NOT version STREQUAL found)
    set(${problem} "Tessera was built with libtorch ${version}, but ${TESSERA_TORCH_INCLUDE} has libtorch \
${found}; name the folder of libtorch ${version} with -DTESSERA_TORCH_ROOT, or build Tessera with \
libtorch ${found}" PARENT_SCOPE)
    return()
  endif()
  set(TESSERA_LIBTORCH_VERSION "${found}" PARENT_SCOPE)

  foreach(library c10_cuda torch_cuda)
    find_library(TESSERA_TORCH_${library} ${library} ${where} PATH_SUFFIXES lib)
    mark_as_advanced(TESSERA_TORCH_${library})
  endforeach()
  # Inline functions of libtorch's headers call CUDA's runtime. A wheel of PyTorch has it in a wheel
  # beside it, without the name that linkers look for.
  file(GLOB runtimes "${TESSERA_TORCH_ROOT}/lib/libcudart*.so*"
    "${TESSERA_TORCH_ROOT}/../nvidia/*/lib/libcudart.so*")
  set(folders "")
  foreach(runtime IN LISTS runtimes)
    get_filename_component(folder "${runtime}" DIRECTORY)
    list(APPEND folders "${folder}")
  endforeach()
  find_library(TESSERA_TORCH_cudart NAMES cudart libcudart.so.13 libcudart.so.12
    HINTS ${folders} ${CUDAToolkit_LIBRARY_DIR} PATHS /usr/local/cuda/lib64)
  mark_as_advanced(TESSERA_TORCH_cudart)
  set(has_cuda OFF)
  # Debian's package has the CUDA headers without the libraries. Before 2.3 the type of a device's index
  # differs.
  if(TESSERA_TORCH_c10_cuda AND TESSERA_TORCH_torch_cuda AND TESSERA_TORCH_cudart AND NOT TESSERA_TORCH_CUDA STREQUAL "OFF"
      AND EXISTS ${TESSERA_TORCH_INCLUDE}/torch/csrc/cuda/CUDAPluggableAllocator.h
      AND NOT found VERSION_LESS 2.3)
    set(has_cuda ON)
  endif()
  set(TESSERA_LIBTORCH_HAS_CUDA ${has_cuda} PARENT_SCOPE)

  if(NOT TARGET tessera::libtorch)
    set(libraries ${TESSERA_TORCH_torch_cpu} ${TESSERA_TORCH_c10})
    if(has_cuda)
      list(PREPEND libraries ${TESSERA_TORCH_torch_cuda} ${TESSERA_TORCH_c10_cuda}
        ${TESSERA_TORCH_cudart})
    endif()
    if(NOT TESSERA_TORCH_CUDA STREQUAL "OFF")
      # libtorch.so has no functions, but loads the libraries of its devices.
      list(PREPEND libraries "-Wl,--no-as-needed,${TESSERA_TORCH_torch},--as-needed")
    endif()
    add_library(tessera::libtorch INTERFACE IMPORTED GLOBAL)
    set_target_properties(tessera::libtorch PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES
        "${TESSERA_TORCH_INCLUDE};${TESSERA_TORCH_INCLUDE}/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES "${libraries}")
  endif()
endfunction()
