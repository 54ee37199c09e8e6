# Builds the page of src/profile/html_report.cpp, which is kept as plain files, into the library.
set(report_folder ${PROJECT_SOURCE_DIR}/src/profile/report)
set(report_source ${PROJECT_BINARY_DIR}/generated/report_files.cpp)
file(GLOB report_files CONFIGURE_DEPENDS
  ${report_folder}/*.html ${report_folder}/*.css ${report_folder}/*.js)
add_custom_command(OUTPUT ${report_source}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${report_folder} -DOUTPUT=${report_source}
    -P ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
  DEPENDS ${report_files} ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
  COMMENT "Embedding the report's page" VERBATIM)
target_sources(tessera PRIVATE ${report_source})
