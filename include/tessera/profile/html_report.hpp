#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// One HTML page that draws `json`: no other file, no network. The page holds `json` itself, with
/// "<" written as "\u003c" so that no string can end the element it stands in.
///
/// `json` is an object with "kind": "compare", "train", "plan" or "scale", and what docs/reports.md
/// says of that kind; parts that are absent are not drawn, members that are not known are kept.
///
/// Errors:  FormatError, with the place in the document, if it is anything else.
[[nodiscard]] std::string html_report(std::string_view json);

}  // namespace tessera
