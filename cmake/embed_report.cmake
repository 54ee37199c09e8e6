# Writes the files of FOLDER (page.html, *.css, *.js) as constants into the C++ source OUTPUT.
cmake_minimum_required(VERSION 3.22)

# Sets `result` to all matching files, sorted by name, as raw string literals. Together they exceed the
# 65,536 characters that every compiler must accept; GCC and clang accept any length.
function(literals_of pattern result)
  file(GLOB files ${FOLDER}/${pattern})
  list(SORT files)
  if(NOT files)
    message(FATAL_ERROR "${FOLDER} has no file ${pattern}")
  endif()
  set(text "")
  foreach(file IN LISTS files)
    file(READ "${file}" content)
    string(FIND "${content}" ")report\"" ends)
    if(NOT ends EQUAL -1)
      message(FATAL_ERROR "${file} contains )report\", which ends its raw string literal")
    endif()
    string(APPEND text "\n    R\"report(${content})report\"")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

literals_of(page.html page)
literals_of(*.css style)
literals_of(*.js script)
file(WRITE ${OUTPUT} "#include \"profile/report_files.hpp\"

#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace tessera::profile {

const std::string_view kReportPage =${page};
const std::string_view kReportStyle =${style};
const std::string_view kReportScript =${script};

}  // namespace tessera::profile
")
