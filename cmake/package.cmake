# Debian packages, made by CPack (docs/install.md): the preset `debian`, target `package`. There is
# one package for each group of files in cmake/component.cmake.
set(TESSERA_MAINTAINER "Tessera authors <tessera@packages.example>" CACHE STRING
  "Maintainer of the packages, with an address")
set(revision 1)
set(version ${PROJECT_VERSION}-${revision})

# Adds a Debian package with the files of `group`. DESCRIPTION is one line, then paragraphs.
set(CPACK_COMPONENTS_ALL "")
macro(tessera_debian_package group name)
  cmake_parse_arguments(arg "" "SECTION;DESCRIPTION" "DEPENDS;RECOMMENDS" ${ARGN})
  string(TOUPPER ${group} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${group})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${arg_SECTION})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${arg_DESCRIPTION}")
  list(JOIN arg_DEPENDS ", " CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS)
  list(JOIN arg_RECOMMENDS ", " CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright
    ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${group} EXCLUDE_FROM_ALL)
endmacro()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${PROJECT_BINARY_DIR}/debian/changelog.Debian
  "tessera (${version}) unstable; urgency=medium\n\n  * Built from Tessera's own sources: see CHANGELOG.md.\n\n"
  " -- ${TESSERA_MAINTAINER}  ${date}\n")
execute_process(COMMAND gzip -9nf ${PROJECT_BINARY_DIR}/debian/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)

set(about "Tessera shards parameters, gradients and optimizer state of a neural\n\
network over the ranks of a job, as ZeRO and FSDP do, for programs in C++.")
if(TESSERA_ARCH)
  string(APPEND about "\nIt runs on processors of ${TESSERA_ARCH} and later.")
endif()
set(library libtessera${TESSERA_SOVERSION})
tessera_debian_package(libraries ${library} SECTION libs
  DESCRIPTION "sharded training of neural networks - shared library\n${about}")
set(needed "${library} (= ${version})")
# A statically linked program needs the libraries that the library was linked to, so the package with
# the static library depends on them.
set(needs_for_static "")
foreach(file IN LISTS tessera_links)
  execute_process(COMMAND dpkg-query --search ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
  if(IS_ABSOLUTE ${file} AND owner MATCHES "^([^:, ]+)")
    list(APPEND needs_for_static ${CMAKE_MATCH_1})
  endif()
endforeach()
tessera_debian_package(development libtessera-dev SECTION libdevel
  DEPENDS ${needed} ${needs_for_static}
  DESCRIPTION "sharded training of neural networks - development files\n${about}\n.\n\
Headers, the static library, and what CMake and pkg-config read.")
if(TESSERA_BUILD_TOOLS)
  tessera_debian_package(command tessera SECTION science DEPENDS ${needed}
    DESCRIPTION "sharded training of neural networks - command\n${about}\n.\n\
The command trains and samples GPT-2, compares strategies, plans memory and\n\
time, and looks into checkpoints.")
endif()
if(TESSERA_HAS_CUDA)
  set(nvidia libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR} libnccl2)
  if(TESSERA_HAS_CUDNN)
    list(APPEND nvidia libcudnn9-cuda-${CUDAToolkit_VERSION_MAJOR})
  endif()
  tessera_debian_package(cuda libtessera-cuda SECTION contrib/libs
    DEPENDS ${needed} RECOMMENDS ${nvidia}
    DESCRIPTION "sharded training of neural networks - CUDA module\n${about}\n.\n\
The module that programs open when they ask for a CUDA device. NVIDIA's\n\
driver, cuBLASLt and NCCL come from NVIDIA's packages.")
endif()

set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VENDOR Tessera)
set(CPACK_PACKAGE_CONTACT "${TESSERA_MAINTAINER}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_SOURCE tessera)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${cuda_folders})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/use_ldconfig_trigger.cmake)
include(CPack)
