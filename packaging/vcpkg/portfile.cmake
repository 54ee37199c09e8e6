# NOT TESTED: follows vcpkg's documentation; no test builds this port (docs/install.md).
# An overlay port, built from the checkout that contains it:
#   vcpkg install tessera --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

set(options "")
foreach(feature cuda mpi onednn)
  string(TOUPPER ${feature} option)
  if(feature IN_LIST FEATURES)
    list(APPEND options -DTESSERA_${option}=ON)
  else()
    list(APPEND options -DTESSERA_${option}=OFF)
  endif()
endforeach()
vcpkg_check_features(OUT_FEATURE_OPTIONS feature_options FEATURES tools TESSERA_BUILD_TOOLS)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${options} ${feature_options} -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF
    # xxHash is a header without a CMake target.
    "-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES=${CURRENT_INSTALLED_DIR}/include")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tessera)
vcpkg_fixup_pkgconfig()
vcpkg_copy_pdbs()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES tessera AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
