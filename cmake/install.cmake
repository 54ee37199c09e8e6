# cmake --install: headers, library, command, and the files for find_package(tessera) and
# pkg-config.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tessera
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(TARGETS tessera ${tessera_other_kind} EXPORT tesseraTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries NAMELINK_COMPONENT development)
if(TESSERA_BUILD_TOOLS)
  install(TARGETS tessera_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()

set(tessera_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir}
  COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tesseraConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tesseraConfig.cmake INSTALL_DESTINATION ${tessera_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake DESTINATION ${tessera_package_dir}
  COMPONENT development)

set(tessera_links -pthread ${CMAKE_DL_LIBS})
if(TESSERA_HAS_MPI)
  list(APPEND tessera_links ${MPI_C_LIBRARIES})
endif()
if(TESSERA_HAS_ONEDNN)
  list(APPEND tessera_links ${TESSERA_ONEDNN_LIBRARIES})
endif()
# A program always needs the dependencies of a library that exists only as a static one.
set(tessera_links_if_static LIBS_PRIVATE)
if(NOT BUILD_SHARED_LIBS AND NOT TESSERA_BOTH_KINDS)
  set(tessera_links_if_static "")
endif()
tessera_install_pc(tessera DESCRIPTION "${PROJECT_DESCRIPTION}"
  LIBS -ltessera ${tessera_links_if_static} ${tessera_links})
