#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Returns an HTML page that draws `json` and needs no other file and no network. The page contains
/// `json` itself, with "<" escaped so that no string can end the element around it.
///
/// `json` is an object whose "kind" is "compare", "train", "plan" or "scale", with the members that
/// docs/reports.md lists for that kind. Absent parts are not drawn; unknown members are kept.
/// Throws FormatError that names the place in the document if `json` is anything else.
[[nodiscard]] std::string html_report(std::string_view json);

}  // namespace tessera
