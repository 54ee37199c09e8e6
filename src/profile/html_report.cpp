#include "tessera/profile/html_report.hpp"

#include "profile/report_check.hpp"
#include "profile/report_files.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

// In JSON "<" occurs only within strings, where the escape means the same. Without it no string can
// end the element, or begin a comment in it.
std::string without_less_than(std::string_view json) {
  std::string text;
  text.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void put(std::string& page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  TESSERA_ASSERT(at != std::string::npos);
  page.replace(at, mark.size(), text);
}

}  // namespace

std::string html_report(std::string_view json) {
  profile::require_report(json);
  std::string page{profile::kReportPage};
  put(page, "/* style */", profile::kReportStyle);
  put(page, "/* script */", profile::kReportScript);
  put(page, "<!-- document -->", without_less_than(json));
  return page;
}

}  // namespace tessera
