# One machine has libraries of the same names in a toolkit, in system folders, in Python wheels and
# in the working directory. The search takes header and library from one place, and the built and
# the installed module load that library. Needs SOURCE_DIR, WORK_DIR, CXX, GENERATOR, READELF.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE_DIR}/tests/libraries/read_run_path.cmake)

# Runs a command and expects status `wanted`.
function(run wanted)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR}/here
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL wanted)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "status ${status}, not ${wanted}, from: ${command}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

# Makes a library lib<name>.so.<number> that reports `place`. LINK adds the name that linkers look
# for.
function(make_library folder name number place)
  file(MAKE_DIRECTORY ${folder})
  set(soname lib${name}.so.${number})
  string(TOLOWER ${name} function)
  run(0 ${CXX} -shared -fPIC -Wl,-soname,${soname} -DFUNCTION=place_of_${function}
    -DPLACE="${place}" -o ${folder}/${soname} ${SOURCE_DIR}/tests/libraries/library.cpp)
  if("LINK" IN_LIST ARGN)
    file(CREATE_LINK ${soname} ${folder}/lib${name}.so SYMBOLIC)
  endif()
endfunction()

# Writes `#define <name>_<part> <number>` for each part, as in version headers.
function(make_version_header file name parts version)
  string(REPLACE "." ";" numbers ${version})
  set(text "")
  foreach(part number IN ZIP_LISTS parts numbers)
    string(APPEND text "#define ${name}_${part} ${number}\n")
  endforeach()
  file(WRITE ${file} "${text}")
endfunction()

function(make_headers nccl cudnn nccl_version cudnn_version)
  make_version_header(${nccl}/nccl.h NCCL "MAJOR;MINOR;PATCH" ${nccl_version})
  file(WRITE ${cudnn}/cudnn.h "")
  make_version_header(${cudnn}/cudnn_version.h CUDNN "MAJOR;MINOR;PATCHLEVEL" ${cudnn_version})
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(toolkit ${WORK_DIR}/toolkit)
set(system ${WORK_DIR}/system)
set(packages ${WORK_DIR}/venv/lib/python3.11/site-packages)
set(wheels ${packages}/nvidia)
set(frontend ${WORK_DIR}/frontend)
file(MAKE_DIRECTORY ${WORK_DIR}/here)
# The toolkit's cuBLASLt, with other libraries that someone copied into its folder.
make_library(${toolkit}/lib64 cublasLt 13 toolkit LINK)
make_library(${toolkit}/lib64 nccl 2 toolkit LINK)
make_library(${toolkit}/lib64 cudnn 9 toolkit LINK)
make_library(${system}/lib nccl 2 system LINK)
make_library(${system}/lib cudnn 9 system LINK)
make_headers(${system}/include ${system}/include 2.28.3 9.16.0)
make_library(${wheels}/nccl/lib nccl 2 wheel)
make_library(${wheels}/cudnn/lib cudnn 9 wheel)
make_headers(${wheels}/nccl/include ${wheels}/cudnn/include 2.28.9 9.19.0)
make_library(${WORK_DIR}/here nccl 2 here)
make_library(${WORK_DIR}/here cudnn 9 here)
make_version_header(${frontend}/cudnn_frontend_version.h CUDNN_FRONTEND
  "MAJOR_VERSION;MINOR_VERSION" 1.16)
file(WRITE ${frontend}/cudnn_frontend.h "")

set(ENV{LD_LIBRARY_PATH} "")
unset(ENV{CMAKE_PREFIX_PATH})
function(configure wanted name)
  run(${wanted} ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/libraries -B ${WORK_DIR}/${name} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug -DSOURCE_DIR=${SOURCE_DIR}
    -DTOOLKIT=${toolkit} -DSYSTEM=${system} -DFRONTEND=${frontend} ${ARGN})
  string(REGEX REPLACE "[ \n]+" " " text "${output}")  # warnings have line breaks
  set(output "${text}" PARENT_SCOPE)
endfunction()

function(output_has)
  foreach(text ${ARGN})
    string(FIND "${output}" "${text}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "the output has no '${text}':\n${output}")
    endif()
  endforeach()
endfunction()

# Builds and installs the configuration `name`. Expects the other arguments as the run path of both
# modules, and `said` as their output.
function(check_loaded name said)
  run(0 ${CMAKE_COMMAND} --build ${WORK_DIR}/${name})
  run(0 ${CMAKE_COMMAND} --install ${WORK_DIR}/${name} --prefix ${WORK_DIR}/${name}/prefix)
  foreach(module ${WORK_DIR}/${name}/libmodule.so ${WORK_DIR}/${name}/prefix/lib/libmodule.so)
    read_run_path(${module} folders)
    if(NOT folders STREQUAL "${ARGN}")
      message(FATAL_ERROR "the run path of ${module} is ${folders}, not ${ARGN}")
    endif()
    run(0 ${WORK_DIR}/${name}/program ${module})
    if(NOT output STREQUAL "${said}\n")
      message(FATAL_ERROR "${module} says '${output}', not '${said}'")
    endif()
  endforeach()
endfunction()

# Wheels are found with their headers even though the system has the linker's name, and loaded even
# though the toolkit's folder has other copies.
configure(0 wheel -DPACKAGES=${packages})
output_has("NCCL 2.28.9 and cuDNN 9.19.0")
if(output MATCHES "two installations")
  message(FATAL_ERROR "nothing is of two installations:\n${output}")
endif()
check_loaded(wheel "cuBLASLt: toolkit, NCCL: wheel, cuDNN: wheel"
  ${wheels}/nccl/lib ${wheels}/cudnn/lib ${toolkit}/lib64)
# LD_LIBRARY_PATH overrides the run path.
set(ENV{LD_LIBRARY_PATH} ${WORK_DIR}/here)
run(0 ${WORK_DIR}/wheel/program ${WORK_DIR}/wheel/libmodule.so)
output_has("cuBLASLt: toolkit, NCCL: here, cuDNN: here")
set(ENV{LD_LIBRARY_PATH} "")

# Without wheels the system's libraries are found, again with their own headers.
configure(0 system -DPACKAGES=)
output_has("NCCL 2.28.3 and cuDNN 9.16.0")
check_loaded(system "cuBLASLt: toolkit, NCCL: system, cuDNN: system" ${system}/lib ${toolkit}/lib64)

# One library is set explicitly, the other is still found in the wheels.
configure(0 mixed -DPACKAGES=${packages} -DTESSERA_NCCL_LIBRARY=${system}/lib/libnccl.so)
output_has("NCCL 2.28.3 and cuDNN 9.19.0")
check_loaded(mixed "cuBLASLt: toolkit, NCCL: system, cuDNN: wheel"
  ${wheels}/cudnn/lib ${system}/lib ${toolkit}/lib64)

# Libraries that cannot be loaded together are refused, and a header of another installation is
# reported.
configure(1 apart -DPACKAGES= -DTESSERA_NCCL_LIBRARY=${toolkit}/lib64/libnccl.so
  -DTESSERA_NCCL_INCLUDE=${system}/include)
output_has("NCCL: the headers in ${system}/include and the library ${toolkit}/lib64/libnccl.so come from two"
  "no run path leads to all of ${toolkit}/lib64/libcublasLt.so.13, ${toolkit}/lib64/libnccl.so.2, "
  "configure with libraries of one installation")

# A linker stub is refused too: it has only the name that linkers look for.
set(toolkit ${WORK_DIR}/stubs)
make_library(${toolkit}/lib64 cublasLt 13 stub)
file(RENAME ${toolkit}/lib64/libcublasLt.so.13 ${toolkit}/lib64/libcublasLt.so)
configure(1 stub -DPACKAGES=${packages})
output_has("a program linked to ${toolkit}/lib64/libcublasLt.so asks for libcublasLt.so.13, which is not")
