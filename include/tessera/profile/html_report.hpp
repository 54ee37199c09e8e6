#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// Makes one HTML page that draws `json` and needs no other file and no network. The page holds
/// `json` itself, with "<" written as "\u003c" so that no string can end the element around it.
///
/// `json` is an object with "kind": "compare", "train", "plan" or "scale", and what docs/reports.md
/// says of that kind. Parts that are absent are not drawn; unknown members are kept.
///
/// Errors:  FormatError that names the place in the document if `json` is anything else.
[[nodiscard]] std::string html_report(std::string_view json);

}  // namespace tessera
