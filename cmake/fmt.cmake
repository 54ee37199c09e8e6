# fmt's declarations, as the target tessera_fmt. As a header-only library, fmt would be half of the
# code that is compiled for a file that formats a line; instead one file of the library compiles fmt
# (src/base/fmt.cpp). If this version of fmt needs more than that file has, all files compile fmt.
find_package(fmt REQUIRED)
add_library(tessera_fmt INTERFACE)
get_target_property(fmt_includes fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
set(CMAKE_TRY_COMPILE_CONFIGURATION Release)  # inlined functions are not emitted there
# Clang replaces an empty class's destructor by its base's, and then does not emit it.
set(fmt_options "")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(fmt_options -Xclang -mno-constructor-aliases)
endif()
try_compile(TESSERA_COMPILES_FMT_ONCE ${PROJECT_BINARY_DIR}/fmt_check
  SOURCES ${PROJECT_SOURCE_DIR}/src/base/fmt.cpp ${PROJECT_SOURCE_DIR}/cmake/fmt_check.cpp
  CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${fmt_includes}" COMPILE_DEFINITIONS ${fmt_options}
  CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
unset(CMAKE_TRY_COMPILE_CONFIGURATION)
if(TESSERA_COMPILES_FMT_ONCE)
  target_include_directories(tessera_fmt SYSTEM INTERFACE ${fmt_includes})
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/fmt.cpp PROPERTIES
    COMPILE_OPTIONS "${fmt_options}" SKIP_UNITY_BUILD_INCLUSION ON)
else()
  message(STATUS "fmt ${fmt_VERSION} is compiled in every file that uses it")
  target_link_libraries(tessera_fmt INTERFACE fmt::fmt-header-only)
  list(FILTER tessera_sources EXCLUDE REGEX "/src/base/fmt\\.cpp$")
endif()
