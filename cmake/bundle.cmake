# TESSERA_BUNDLE: a folder filled by scripts/bundle_deps.sh, used in place of the system's packages.
# find_package() then finds only the packages that are described here under these names.
set(TESSERA_BUNDLE "" CACHE PATH "Folder that scripts/bundle_deps.sh filled, used instead of packages")
if(NOT TESSERA_BUNDLE)
  return()
endif()
if(NOT EXISTS ${TESSERA_BUNDLE}/include/eigen3/Eigen/Core)
  message(FATAL_ERROR "TESSERA_BUNDLE is '${TESSERA_BUNDLE}', which is not a bundle: "
    "fill it with scripts/bundle_deps.sh")
endif()
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)

# A package whose configuration is the CMake code `text`; its version satisfies every request.
function(tessera_bundled package text)
  set(folder ${PROJECT_BINARY_DIR}/bundle/${package})
  file(WRITE ${folder}/${package}Config.cmake
    "set(bundle \"${TESSERA_BUNDLE}\")\nif(TARGET tessera_bundled_${package})\n  return()\nendif()\n\
add_library(tessera_bundled_${package} INTERFACE)\n${text}")
  file(WRITE ${folder}/${package}ConfigVersion.cmake
    "set(PACKAGE_VERSION bundled)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
  set(${package}_DIR ${folder} CACHE PATH "" FORCE)
endfunction()

# A package of headers in `folder` of the bundle, as `target`.
function(tessera_bundled_headers package target folder definitions)
  tessera_bundled(${package} "
add_library(${target} INTERFACE IMPORTED GLOBAL)
set_target_properties(${target} PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES \"\${bundle}/${folder}\"
  INTERFACE_COMPILE_DEFINITIONS \"${definitions}\")
")
endfunction()

tessera_bundled_headers(Eigen3 Eigen3::Eigen include/eigen3 "")
tessera_bundled_headers(fmt fmt::fmt-header-only include FMT_HEADER_ONLY=1)
tessera_bundled_headers(nlohmann_json nlohmann_json::nlohmann_json include "")
tessera_bundled_headers(CLI11 CLI11::CLI11 include "")
tessera_bundled(GTest [[
find_package(Threads REQUIRED)
set(googletest ${bundle}/src/googletest)
add_library(tessera_gtest STATIC ${googletest}/googletest/src/gtest-all.cc
  ${googletest}/googlemock/src/gmock-all.cc)
target_include_directories(tessera_gtest
  SYSTEM PUBLIC ${googletest}/googletest/include ${googletest}/googlemock/include
  PRIVATE ${googletest}/googletest ${googletest}/googlemock)
target_compile_definitions(tessera_gtest PUBLIC GTEST_HAS_PTHREAD=1)
target_link_libraries(tessera_gtest PUBLIC Threads::Threads)
add_library(tessera_gtest_main STATIC ${googletest}/googletest/src/gtest_main.cc)
target_link_libraries(tessera_gtest_main PUBLIC tessera_gtest)
foreach(name gtest gmock)
  add_library(GTest::${name} ALIAS tessera_gtest)
endforeach()
add_library(GTest::gtest_main ALIAS tessera_gtest_main)
]])
tessera_bundled(benchmark [[
find_package(Threads REQUIRED)
add_library(benchmark::benchmark SHARED IMPORTED GLOBAL)
set_target_properties(benchmark::benchmark PROPERTIES
  IMPORTED_LOCATION ${bundle}/lib/libbenchmark.so
  INTERFACE_INCLUDE_DIRECTORIES ${bundle}/include
  INTERFACE_LINK_LIBRARIES Threads::Threads)
add_library(benchmark::benchmark_main STATIC IMPORTED GLOBAL)
set_target_properties(benchmark::benchmark_main PROPERTIES
  IMPORTED_LOCATION ${bundle}/lib/libbenchmark_main.a
  INTERFACE_LINK_LIBRARIES benchmark::benchmark)
]])
# xxHash is a header without a target.
include_directories(SYSTEM ${TESSERA_BUNDLE}/include)
