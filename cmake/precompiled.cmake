# Parses headers of others once for all sources of a target: the standard library's, fmt's, and
# GoogleTest's for tests. Tessera's own are not among them, so that an edit of one compiles no more
# than before.
#
# Only with GCC, whose precompiled headers a compiler cache keeps for every clone: clang's name the
# folder that they were made in. Not with sanitizers, where programs of tests differ in their options.
# As for TESSERA_TOGETHER, the preset `debug` shows that each source includes what it uses.
set(TESSERA_PRECOMPILED
  <algorithm> <array> <atomic> <chrono> <cmath> <cstddef> <cstdint> <cstring> <exception> <filesystem>
  <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
  <system_error> <thread> <tuple> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)

# FROM: uses those of that target, which is compiled with the same options. Otherwise ARGN: more headers.
function(tessera_precompile target)
  cmake_parse_arguments(arg "" "FROM" "" ${ARGN})
  if(NOT TESSERA_TOGETHER OR TESSERA_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(arg_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  else()
    list(TRANSFORM arg_UNPARSED_ARGUMENTS REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE more)
    list(TRANSFORM TESSERA_PRECOMPILED REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${headers} ${more})
  endif()
  # ccache needs it.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  # Sources with options of their own, or that configure a header before they include it.
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    foreach(property COMPILE_OPTIONS SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(value ${source} TARGET_DIRECTORY ${target} ${property})
      if(value)
        set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
          SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endforeach()
endfunction()
