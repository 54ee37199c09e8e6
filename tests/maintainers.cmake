# What only those who change Tessera need: the files themselves (headers, layers, pages, scripts), all
# ways to install and package, rehearsals, trials. Included for TESSERA_TESTS=ALL.

# Fuzzes the parsers. They have one thread.
if(NOT TESSERA_SANITIZE MATCHES "thread")
  add_subdirectory(fuzz)
endif()

# Tests with the same result in every build: label `once`, left out of sanitizer builds. The
# report's pages are tested as files and, where there is one, in a browser.
if(NOT TESSERA_SANITIZE)
  tessera_tests(report OUTSIDE TIMEOUT 300 LABEL once)
  add_executable(test_layers layers/layers_test.cpp layers/names_test.cpp layers/peers_test.cpp)
  target_include_directories(test_layers PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(test_layers PRIVATE -O1)  # regular expressions: -O3 takes half a minute
  tessera_test_places(test_layers kSourceDir ${PROJECT_SOURCE_DIR})
  target_link_libraries(test_layers PRIVATE tessera_options GTest::gtest GTest::gtest_main)
  tessera_discover_tests(test_layers PREFIX layers. PER_CASE PROPERTIES TIMEOUT 60 LABELS once)
endif()

# Every header compiles alone and can be included twice: public headers with only the public folder,
# private ones with the dependencies of their layers.
if(NOT TESSERA_SANITIZE)
  function(tessera_headers_alone name)
    set(stubs "")
    foreach(header IN LISTS ARGN)
      set(stub ${CMAKE_CURRENT_BINARY_DIR}/${name}/${header}.cpp)
      string(REGEX REPLACE "^(include|src)/" "" included_as ${header})
      file(CONFIGURE OUTPUT ${stub} @ONLY
        CONTENT "#include \"${included_as}\"\n#include \"${included_as}\"\n")
      list(APPEND stubs ${stub})
    endforeach()
    add_library(${name} OBJECT ${stubs})
    # Functions of a header that only one source includes are unused here.
    target_compile_options(${name} PRIVATE -O0 -g0 -Wno-unused-function)
    target_link_libraries(${name} PRIVATE tessera_options)
  endfunction()
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/include/*.hpp)
  # Headers of the adapter need libtorch: torch.hpp includes the others.
  set(torch_headers ${headers})
  list(FILTER torch_headers INCLUDE REGEX "^include/tessera/torch/")
  list(FILTER headers EXCLUDE REGEX "^include/tessera/torch[/.]")
  tessera_headers_alone(public_headers_alone ${headers})
  target_include_directories(public_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
  if(TESSERA_HAS_TORCH)
    tessera_headers_alone(torch_headers_alone ${torch_headers})
    target_include_directories(torch_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(torch_headers_alone PRIVATE tessera::libtorch)
  endif()
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/*.hpp ${PROJECT_SOURCE_DIR}/kernels/*.hpp)
  if(NOT TESSERA_HAS_MPI)
    list(FILTER headers EXCLUDE REGEX "^src/comm/(control/)?mpi/")
  endif()
  if(NOT TESSERA_CUDA_INCLUDES)
    list(FILTER headers EXCLUDE REGEX "/(cuda|nccl)/[^/]*$")
  endif()
  # Each takes seconds to parse; the lint already compiles the sources that include them first.
  list(FILTER headers EXCLUDE REGEX "^src/torch/")
  tessera_headers_alone(private_headers_alone ${headers})
  target_include_directories(private_headers_alone PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(private_headers_alone SYSTEM PRIVATE
    ${TESSERA_CUDA_INCLUDES} ${MPI_C_INCLUDE_DIRS})
  target_link_libraries(private_headers_alone PRIVATE
    Eigen3::Eigen tessera_fmt nlohmann_json::nlohmann_json)
endif()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/*.cpp)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME compile_fail.${name} COMMAND ${CMAKE_COMMAND}
    -DSOURCE=${source} -DCXX=${CMAKE_CXX_COMPILER} -DINCLUDE=${PROJECT_SOURCE_DIR}/include
    -P ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/check_compile_fail.cmake)
  set_tests_properties(compile_fail.${name} PROPERTIES TIMEOUT 300 LABELS once)
endforeach()

if(TESSERA_HAS_TORCH AND NOT TESSERA_SANITIZE)
  add_test(NAME install.torch COMMAND ${CMAKE_COMMAND}
    -DBUILD_DIR=${PROJECT_BINARY_DIR} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
    -DWORK_DIR=${PROJECT_BINARY_DIR}/torch_install_test -DCXX=${CMAKE_CXX_COMPILER}
    -DGENERATOR=${CMAKE_GENERATOR} -DREADELF=${CMAKE_READELF} -DPYTHON=python3
    -P ${CMAKE_CURRENT_SOURCE_DIR}/install/check_torch.cmake)
  set_tests_properties(install.torch PROPERTIES TIMEOUT 600 LABELS once COST 60)
endif()

# The ways to get Tessera (docs/install.md): within another project, and in packages.
if(TESSERA_PYTHON3 AND NOT TESSERA_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(emulated "")
  if(TARGET tessera_cuda_emulated)
    set(emulated $<TARGET_FILE:tessera_cuda_emulated>)
  endif()
  set(checks subproject)
  find_program(TESSERA_DPKG_SHLIBDEPS dpkg-shlibdeps)
  find_program(TESSERA_FILE file)
  find_program(TESSERA_PKG_CONFIG pkg-config)
  if(TESSERA_BUILD_TOOLS AND TESSERA_DPKG_SHLIBDEPS AND TESSERA_FILE AND TESSERA_PKG_CONFIG)
    list(APPEND checks debian)
  else()
    message(STATUS "Without the test of Debian's packages: it needs dpkg-dev, file, pkg-config and "
      "the command")
  endif()
  foreach(check IN LISTS checks)
    add_test(NAME packages.${check} COMMAND ${CMAKE_COMMAND}
      -DBUILD_DIR=${PROJECT_BINARY_DIR} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
      -DWORK_DIR=${PROJECT_BINARY_DIR}/packages_${check} -DCXX=${CMAKE_CXX_COMPILER}
      -DGENERATOR=${CMAKE_GENERATOR} -DREADELF=${CMAKE_READELF} -DVERSION=${PROJECT_VERSION}
      -DPYTHON=${TESSERA_PYTHON3} -DMODULE=${emulated}
      -P ${CMAKE_CURRENT_SOURCE_DIR}/packages/check_${check}.cmake)
    set_tests_properties(packages.${check} PROPERTIES TIMEOUT 900 LABELS once COST 50)
  endforeach()
endif()

if(TESSERA_BUILD_TOOLS AND TARGET tessera_c AND TESSERA_PYTHON3)
  add_test(NAME install.c COMMAND ${CMAKE_COMMAND}
    -DBUILD_DIR=${PROJECT_BINARY_DIR} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
    -DWORK_DIR=${PROJECT_BINARY_DIR}/install_c_test -DCC=${CMAKE_C_COMPILER}
    -DGENERATOR=${CMAKE_GENERATOR} -DPYTHON=${TESSERA_PYTHON3}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/install/check_c.cmake)
  set_tests_properties(install.c PROPERTIES TIMEOUT 300 LABELS once)
endif()

# A CUDA trainer, compiled by nvcc as an outside project. On a GPU scripts/gpu_check.sh runs all of
# it.
if(TESSERA_HAS_CUDA AND NOT TESSERA_SANITIZE AND TARGET CUDA::cublas)
  set(emulated "")
  if(TARGET tessera_cuda_emulated)
    set(emulated $<TARGET_FILE:tessera_cuda_emulated>)
  endif()
  list(GET CMAKE_CUDA_ARCHITECTURES 0 architecture)
  add_test(NAME install.cuda_trainer COMMAND ${CMAKE_COMMAND}
    -DBUILD_DIR=${PROJECT_BINARY_DIR} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
    -DWORK_DIR=${PROJECT_BINARY_DIR}/cuda_trainer_test -DCXX=${CMAKE_CXX_COMPILER}
    -DNVCC=${CMAKE_CUDA_COMPILER} -DPYTHON=python3 -DGENERATOR=${CMAKE_GENERATOR}
    -DARCHITECTURES=${architecture} -DMODULE=${emulated}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/install/check_cuda_trainer.cmake)
  set_tests_properties(install.cuda_trainer PROPERTIES TIMEOUT 600 LABELS once COST 30)
endif()

add_test(NAME bundle.python_packages COMMAND ${CMAKE_COMMAND}
  -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DWORK_DIR=${PROJECT_BINARY_DIR}/python_packages_test
  -P ${CMAKE_CURRENT_SOURCE_DIR}/bundle/check_python_packages.cmake)
set_tests_properties(bundle.python_packages PROPERTIES TIMEOUT 60 LABELS once)

# The generated page says what the command answers.
if(TARGET tessera_command)
  add_test(NAME pages.what_fits
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/what_fits.py $<TARGET_FILE:tessera_command> --check)
  set_tests_properties(pages.what_fits PROPERTIES TIMEOUT 120 LABELS once)
endif()

# With several libraries of one name: which is found and which is loaded.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  add_test(NAME libraries.configured_ones_are_loaded COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DWORK_DIR=${PROJECT_BINARY_DIR}/libraries_test
    -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR} -DREADELF=${CMAKE_READELF}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/libraries/check_libraries.cmake)
  set_tests_properties(libraries.configured_ones_are_loaded PROPERTIES TIMEOUT 120 LABELS once)
endif()
if(TESSERA_HAS_CUDA)
  add_test(NAME libraries.a_stub_is_no_cuda COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DWORK_DIR=${PROJECT_BINARY_DIR}/stub_test
    -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR} -DNVCC=${TESSERA_NVCC}
    -DNCCL_LIBRARY=${TESSERA_NCCL_LIBRARY} -DNCCL_INCLUDE=${TESSERA_NCCL_INCLUDE}
    -DBUNDLE=${TESSERA_BUNDLE} -P ${CMAKE_CURRENT_SOURCE_DIR}/libraries/check_stub.cmake)
  set_tests_properties(libraries.a_stub_is_no_cuda PROPERTIES TIMEOUT 120 LABELS once COST 30)
endif()

# Debian's packages are enough to fill a bundle.
if(EXISTS /usr/src/googletest/googletest/src/gtest-all.cc)
  add_test(NAME bundle.builds COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DWORK_DIR=${PROJECT_BINARY_DIR}/bundle_test
    -DCXX=${CMAKE_CXX_COMPILER} -DGENERATOR=${CMAKE_GENERATOR}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/bundle/check_bundle.cmake)
  set_tests_properties(bundle.builds PROPERTIES TIMEOUT 300 LABELS once COST 30)
endif()

# The GPU check's verdicts and its comparison of two runs, on a made-up machine.
find_program(TESSERA_BASH bash)
if(TESSERA_PYTHON3)
  foreach(what verdicts compare programs)
    add_test(NAME gpu_check.${what} COMMAND ${TESSERA_PYTHON3} -B
      ${CMAKE_CURRENT_SOURCE_DIR}/gpu_check/${what}_test.py)
    set_tests_properties(gpu_check.${what} PROPERTIES TIMEOUT 120 LABELS once)
  endforeach()
endif()
# The script that writes token files; without Python's package tokenizers only a part of it is tested.
if(TESSERA_BUILD_TOOLS AND TESSERA_PYTHON3 AND NOT TESSERA_SANITIZE)
  add_test(NAME prepare_tokens.script COMMAND ${TESSERA_PYTHON3} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/prepare_tokens/prepare_tokens_test.py $<TARGET_FILE:tessera_command>)
  set_tests_properties(prepare_tokens.script PROPERTIES TIMEOUT 300 LABELS once SKIP_RETURN_CODE 77)
endif()
# Part build compiles every file that it installs.
find_program(TESSERA_NINJA ninja)
if(TESSERA_PYTHON3 AND TESSERA_NINJA AND TESSERA_HAS_CUDA AND NOT TESSERA_SANITIZE)
  add_test(NAME gpu_check.build COMMAND ${TESSERA_PYTHON3} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/gpu_check/build_test.py ${PROJECT_BINARY_DIR}/gpu_check_build)
  set_tests_properties(gpu_check.build PROPERTIES TIMEOUT 300 LABELS once)
endif()

# What scripts read from the machine code of kernels.
if(TESSERA_BASH AND TESSERA_PYTHON3)
  add_test(NAME machine_code.scripts COMMAND ${TESSERA_BASH}
    ${CMAKE_CURRENT_SOURCE_DIR}/machine_code/check.sh ${PROJECT_BINARY_DIR}/machine_code
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(machine_code.scripts PROPERTIES TIMEOUT 60 LABELS once)
endif()

# Pages that a new user follows in an empty folder, with only their files and commands. A page after
# a colon continues with the files of the page before it.
if(TESSERA_BUILD_TOOLS AND TESSERA_PYTHON3)
  set(without "")
  if(NOT TESSERA_HAS_MPI)
    set(without --without mpirun "this build has no MPI")
  endif()
  set(guides wrapping:wrapping-plan)
  if(TESSERA_HAS_TORCH)
    list(APPEND guides libtorch:from-ddp)
  endif()
  if(TARGET tessera_c)
    list(APPEND guides wrapping-c)
  endif()
  foreach(guide IN LISTS guides)
    string(REPLACE ":" ";" pages ${guide})
    list(GET pages 0 name)
    list(TRANSFORM pages PREPEND ${PROJECT_SOURCE_DIR}/docs/)
    list(TRANSFORM pages APPEND .md)
    add_test(NAME guide.${name} COMMAND ${TESSERA_PYTHON3} -B
      ${CMAKE_CURRENT_SOURCE_DIR}/guide/check_page.py ${pages}
      ${PROJECT_BINARY_DIR}/guide_pages/${name} ${PROJECT_BINARY_DIR} ${without})
    set_tests_properties(guide.${name} PROPERTIES TIMEOUT 600 LABELS once COST 30 ENVIRONMENT
      "CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};CMAKE_GENERATOR=${CMAKE_GENERATOR};MPIEXEC=${MPIEXEC_EXECUTABLE}")
  endforeach()
endif()

# The documentation's site builds, and a browser reads its pages, where there is one. The pages'
# commands run in a copy of the repository.
if(NOT TESSERA_SANITIZE AND TESSERA_PYTHON3)
  add_test(NAME site.builds COMMAND ${PROJECT_SOURCE_DIR}/scripts/site.sh --test)
  set_tests_properties(site.builds PROPERTIES TIMEOUT 300 LABELS once COST 40 SKIP_RETURN_CODE 77
    FIXTURES_SETUP site ENVIRONMENT "TESSERA_SITE=${PROJECT_BINARY_DIR}/site_test")
  add_test(NAME site.reads_in_a_browser COMMAND ${TESSERA_PYTHON3} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/site/browse.py ${PROJECT_BINARY_DIR}/site_test/html)
  set_tests_properties(site.reads_in_a_browser PROPERTIES TIMEOUT 300 LABELS once COST 40
    SKIP_RETURN_CODE 77 FIXTURES_REQUIRED site)
  if(TESSERA_BUILD_TOOLS AND TESSERA_BUILD_EXAMPLES)
    add_test(NAME pages.commands_run COMMAND ${TESSERA_PYTHON3} -B
      ${CMAKE_CURRENT_SOURCE_DIR}/pages/run_pages.py ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/pages_copy)
    set_tests_properties(pages.commands_run PROPERTIES TIMEOUT 600 LABELS once COST 60 SKIP_RETURN_CODE 77)
    add_test(NAME pages.refusals COMMAND ${TESSERA_PYTHON3} -B
      ${CMAKE_CURRENT_SOURCE_DIR}/pages/refusals.py ${PROJECT_BINARY_DIR})
    set_tests_properties(pages.refusals PROPERTIES TIMEOUT 100 LABELS once SKIP_RETURN_CODE 77)
  endif()
endif()

# Programs shown on pages are compiled and run as they are.
if(TESSERA_PYTHON3)
  foreach(page "memory-ledger:examples/memory_ledger" "planning:examples/hand_written_mlp"
          "mesh-trainer:examples/mesh_trainer"
          "libtorch-features:examples/torch/plan_net:tests/torch/outside_passes_test")
    string(REPLACE ":" ";" sources ${page})
    list(POP_FRONT sources page)
    list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
    list(TRANSFORM sources APPEND .cpp)
    add_test(NAME guide.snippets.${page} COMMAND ${TESSERA_PYTHON3} -B
      ${CMAKE_CURRENT_SOURCE_DIR}/guide/check_snippets.py ${PROJECT_SOURCE_DIR}/docs/${page}.md
      ${sources})
    set_tests_properties(guide.snippets.${page} PROPERTIES TIMEOUT 60 LABELS once)
  endforeach()
endif()

# Error texts that a page explains exist in the sources.
if(TESSERA_PYTHON3)
  add_test(NAME guide.texts.errors COMMAND ${TESSERA_PYTHON3} -B
    ${CMAKE_CURRENT_SOURCE_DIR}/guide/check_texts.py ${PROJECT_SOURCE_DIR}/docs/errors.md
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tools)
  set_tests_properties(guide.texts.errors PROPERTIES TIMEOUT 60 LABELS once)
endif()

# The programs that trials of checkpoints run: one to be killed, one that damages what it has saved.
tessera_test_executable(checkpoint_saver checkpoint/saver.cpp)
tessera_test_executable(checkpoint_whole checkpoint/whole.cpp)
target_link_libraries(checkpoint_whole PRIVATE tessera_test_sources)
set_target_properties(checkpoint_whole PROPERTIES TESSERA_COMPUTES ON)

# Trials of the command in the hands of an unlucky user: few here, any number by hand
# (docs/testing.md).
if(TESSERA_BUILD_TOOLS AND TESSERA_PYTHON3)
  foreach(trial options|200|once|tessera_command weights|200|cli|tessera_command
      changing_files|20|once|tessera_command kills|25|once|tessera_command
      plans|40|once|tessera_command suspended|6|once|tessera_command
      environment|26|once|tessera_command saves|5|once|checkpoint_saver
      checkpoints|120|checkpoint|checkpoint_whole)
    string(REPLACE "|" ";" trial ${trial})
    list(GET trial 0 name)
    list(GET trial 1 count)
    list(GET trial 2 label)
    list(GET trial 3 program)
    add_test(NAME trials.${name} COMMAND ${TESSERA_PYTHON3} -B
      ${PROJECT_SOURCE_DIR}/scripts/trials/${name}.py --count ${count}
      --command $<TARGET_FILE:${program}>)
    set_tests_properties(trials.${name} PROPERTIES TIMEOUT 600 LABELS ${label})
    # Each trial reports a command that only fails.
    add_test(NAME trials.${name}_can_fail COMMAND ${TESSERA_PYTHON3} -B
      ${PROJECT_SOURCE_DIR}/scripts/trials/${name}.py --count 1 --command /bin/false)
    set_tests_properties(trials.${name}_can_fail PROPERTIES TIMEOUT 60 LABELS once
      PASS_REGULAR_EXPRESSION "FAILED: number 0 of seed 1: ")
  endforeach()
endif()

# All of its parts, at tiny sizes, on the emulated module.
if(TARGET test_cuda_cli AND TARGET tessera_cuda_bench AND TARGET test_nccl_fault AND
   TARGET tessera_cuda_emulated)
  add_test(NAME gpu_check.emulated COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DBUILD_DIR=${PROJECT_BINARY_DIR}
    -DWORK_DIR=${PROJECT_BINARY_DIR}/gpu_check_test
    -P ${CMAKE_CURRENT_SOURCE_DIR}/gpu_check/check_gpu_check.cmake)
  set_tests_properties(gpu_check.emulated PROPERTIES TIMEOUT 600 LABELS once COST 45)
endif()

# All that scripts/gpu_check.sh runs, as one target: CMake's makefiles build the targets of a command
# one after the other.
if(TESSERA_HAS_CUDA AND TARGET tessera_command AND TARGET tessera_cuda_bench AND TARGET test_nccl_fault)
  add_custom_target(gpu_check_programs DEPENDS tessera_command tessera_cuda tessera_cuda_bench
    test_kernels test_cuda test_cuda_comm test_cuda_parity test_cuda_cli test_comm test_nccl_parity
    test_nccl_fault failing_rank)
endif()
