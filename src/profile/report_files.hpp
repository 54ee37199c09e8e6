#pragma once

#include <string_view>

namespace tessera::profile {

// The files of src/profile/report, put into a source by cmake/embed_report.cmake.
extern const std::string_view kReportPage;    ///< the HTML, with a comment where the rest goes
extern const std::string_view kReportStyle;   ///< the style sheets
extern const std::string_view kReportScript;  ///< the scripts: declarations, and `main`

}  // namespace tessera::profile
