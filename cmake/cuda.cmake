# The CUDA module: a separate shared library, which the program opens at the first use of a CUDA
# device. Sets TESSERA_HAS_CUDA, and TESSERA_CUDA_INCLUDES if at least the headers were found.
set(TESSERA_HAS_CUDA OFF)
set(TESSERA_CUDA_INCLUDES "")
file(GLOB_RECURSE TESSERA_CUDA_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/*/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/*/cuda/*.cu
  ${PROJECT_SOURCE_DIR}/src/*/nccl/*.cpp
  ${PROJECT_SOURCE_DIR}/kernels/*_cuda.cu ${PROJECT_SOURCE_DIR}/kernels/*/cuda/*.cu
  ${PROJECT_SOURCE_DIR}/kernels/*/cuda/*.cpp)
list(FILTER TESSERA_CUDA_SOURCES EXCLUDE REGEX "/attention_cudnn\\.cpp$")  # added where cuDNN is found
list(FILTER tessera_sources EXCLUDE REGEX "/(cuda|nccl)/[^/]*$")

# The program and the module must have been built from the same files.
file(GLOB_RECURSE interface_headers ${PROJECT_SOURCE_DIR}/include/*.hpp
  ${PROJECT_SOURCE_DIR}/kernels/*.hpp ${PROJECT_SOURCE_DIR}/src/*.hpp)
list(FILTER interface_headers EXCLUDE REGEX "/src/c/")
list(SORT interface_headers)
set(interface_hashes "")
foreach(header IN LISTS interface_headers)
  file(SHA256 ${header} hash)
  string(APPEND interface_hashes ${hash})
endforeach()
string(SHA256 interface_hash "${interface_hashes}")
string(SUBSTRING ${interface_hash} 0 12 interface_hash)
set(TESSERA_BUILD_ID "${PROJECT_VERSION}-${interface_hash}")

set(cuda_problem "")
find_program(TESSERA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
  PATH_SUFFIXES bin)
set(nvcc_root "")
if(TESSERA_NVCC)
  get_filename_component(nvcc_root ${TESSERA_NVCC} DIRECTORY)
  get_filename_component(nvcc_root ${nvcc_root} DIRECTORY)
endif()
find_path(TESSERA_CUDA_RUNTIME_INCLUDE cuda_runtime_api.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH ${nvcc_root} PATHS /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(TESSERA_CUDA_RUNTIME_INCLUDE TESSERA_NVCC)
include(cmake/python_packages.cmake)
get_filename_component(cuda_root "${TESSERA_CUDA_RUNTIME_INCLUDE}" DIRECTORY)
include(cmake/nccl.cmake)
if(TESSERA_CUDA_RUNTIME_INCLUDE AND TESSERA_NCCL_INCLUDE AND NOT nccl_version VERSION_LESS nccl_needed)
  set(TESSERA_CUDA_INCLUDES ${TESSERA_CUDA_RUNTIME_INCLUDE} ${TESSERA_NCCL_INCLUDE})
  list(REMOVE_DUPLICATES TESSERA_CUDA_INCLUDES)
endif()

if(TESSERA_CUDA STREQUAL "OFF")
  return()
endif()
if(NOT TESSERA_NVCC OR NOT TESSERA_CUDA_RUNTIME_INCLUDE)
  set(cuda_problem "the CUDA toolkit was not found (nvcc, cuda_runtime_api.h; in /usr/local/cuda or \
CUDA_HOME)")
elseif(NOT TESSERA_NCCL_INCLUDE OR NOT TESSERA_NCCL_LIBRARY)
  set(cuda_problem "NCCL was not found (nccl.h, libnccl.so.2; in the toolkit, the system's folders, \
or Python's nvidia-nccl)")
elseif(nccl_version VERSION_LESS nccl_needed)
  set(cuda_problem "NCCL ${nccl_version} in ${TESSERA_NCCL_INCLUDE} is too old: ${nccl_needed} or later is \
needed (name another with TESSERA_NCCL_INCLUDE and TESSERA_NCCL_LIBRARY)")
else()
  if(NOT CMAKE_CUDA_COMPILER)  # an enclosing project may have set it
    set(CMAKE_CUDA_COMPILER ${TESSERA_NVCC})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know the option of nvcc 13
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  if(CUDAToolkit_VERSION VERSION_LESS 12.4)
    set(cuda_problem "CUDA ${CUDAToolkit_VERSION} is too old: 12.4 or later is needed")
  elseif(NOT TARGET CUDA::cublasLt)
    set(cuda_problem "the CUDA toolkit in ${CUDAToolkit_LIBRARY_DIR} has no cublasLt")
  endif()
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
      set(cuda_problem "TESSERA_CUDA_ARCHITECTURES names '${architecture}': attention needs the tensor \
cores of 80 or later")
    endif()
  endforeach()
endif()
# Finds the files that the module will load before deciding to build it: a stub cannot be loaded.
if(NOT cuda_problem)
  include(cmake/cudnn.cmake)
  include(cmake/run_path.cmake)
  tessera_loaded_file(${CUDA_cublasLt_LIBRARY} cublaslt_file cuda_problem)
  tessera_loaded_file(${TESSERA_NCCL_LIBRARY} nccl_file cuda_problem)
  set(cudnn_file "")
  if(TESSERA_HAS_CUDNN)
    tessera_loaded_file(${TESSERA_CUDNN_LIBRARY} cudnn_file cuda_problem)
  endif()
  set(cuda_files ${cublaslt_file} ${nccl_file} ${cudnn_file})
  tessera_run_path("${cuda_files}" cuda_folders cuda_problem)
endif()
if(cuda_problem)
  if(NOT TESSERA_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TESSERA_CUDA is ${TESSERA_CUDA}, but ${cuda_problem}. To build without CUDA, \
configure with -DTESSERA_CUDA=OFF")
  endif()
  message(STATUS "Without CUDA: ${cuda_problem}")
  return()
endif()
set(TESSERA_HAS_CUDA ON)
tessera_warn_of_two_roots(NCCL ${TESSERA_NCCL_INCLUDE} ${TESSERA_NCCL_LIBRARY}
  "name others with TESSERA_NCCL_INCLUDE and TESSERA_NCCL_LIBRARY")
tessera_warn_of_two_roots(cuBLASLt ${TESSERA_CUDA_RUNTIME_INCLUDE} ${CUDA_cublasLt_LIBRARY}
  "set CUDA_HOME to a toolkit that has both")

# Call this after the library's target exists.
function(tessera_add_cuda_module)
  set(sources ${TESSERA_CUDA_SOURCES})
  if(TESSERA_HAS_CUDNN)
    list(FILTER sources EXCLUDE REGEX "/attention_no_cudnn\\.cpp$")
    set(with_cudnn ${PROJECT_SOURCE_DIR}/kernels/attention/cuda/attention_cudnn.cpp)
    list(APPEND sources ${with_cudnn})
    # This file builds a graph once per shape: -O3 would spend minutes on cuDNN's templates in vain.
    set_source_files_properties(${with_cudnn} PROPERTIES COMPILE_OPTIONS -O1 COMPILE_DEFINITIONS
      "CUDNN_FRONTEND_SKIP_JSON_LIB;NV_CUDNN_FRONTEND_DISABLE_LOGGING")
  endif()
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/kernels/attention/cuda/attention_no_cudnn.cpp PROPERTIES
    COMPILE_DEFINITIONS TESSERA_CUDNN_PROBLEM="${TESSERA_CUDNN_PROBLEM}")
  add_library(tessera_cuda MODULE ${sources})
  set_target_properties(tessera_cuda PROPERTIES
    TESSERA_LIBRARY ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
    CXX_VISIBILITY_PRESET default)
  tessera_load_from(tessera_cuda ${cuda_folders})
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_configured.cpp PROPERTIES
    COMPILE_DEFINITIONS "TESSERA_CUBLASLT_FILE=\"${cublaslt_file}\";TESSERA_NCCL_FILE=\"${nccl_file}\";TESSERA_CUDNN_FILE=\"${cudnn_file}\"")
  # Set on one file only, since the value changes with every header.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_device.cpp
    PROPERTIES COMPILE_DEFINITIONS TESSERA_BUILD_ID="${TESSERA_BUILD_ID}")
  string(REPLACE ";" "," compiled_for "${CMAKE_CUDA_ARCHITECTURES}")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_look.cpp
    PROPERTIES COMPILE_DEFINITIONS TESSERA_CUDA_COMPILED_FOR="${compiled_for}")
  target_include_directories(tessera_cuda PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(tessera_cuda SYSTEM PRIVATE
    ${TESSERA_CUDA_INCLUDES} ${TESSERA_CUDNN_INCLUDES})
  # Without contraction, kernels of correctly rounded operations give the CPU's bits.
  target_compile_options(tessera_cuda PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-fmad=false;-lineinfo;-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TESSERA_WERROR}>>:-Werror=all-warnings>")
  # Links the library's archive by its file, since CMake 3.25 does not know C++20 for nvcc 13. The
  # module has hidden copies of the code that it uses.
  add_dependencies(tessera_cuda ${TESSERA_ARCHIVE})
  target_compile_options(tessera_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:tessera_options,INTERFACE_COMPILE_OPTIONS>>)
  target_link_libraries(tessera_cuda PRIVATE $<TARGET_LINKER_FILE:${TESSERA_ARCHIVE}>
    tessera_fmt CUDA::cudart_static CUDA::cublasLt ${TESSERA_NCCL_LIBRARY}
    ${TESSERA_CUDNN_LIBRARIES} ${CMAKE_DL_LIBS})
  target_link_options(tessera_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  # These sources stay separate: they compile longest, or define names that other sources define.
  tessera_compile_together(tessera_cuda CUDA MOST 6
    ALONE "(cuda_sort|embedding_cuda|attention[a-z_]*_cuda)\\.cu$|cudnn")
  if(TESSERA_INSTALL)
    install(TARGETS tessera_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera COMPONENT cuda)
  endif()
endfunction()
