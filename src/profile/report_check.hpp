#pragma once

#include <string_view>

namespace tessera::profile {

/// Throws FormatError, with the place, unless `json` is a document that the report's page can draw.
void require_report(std::string_view json);

}  // namespace tessera::profile
