#pragma once

#include <functional>
#include <string>

#include "tessera/world/run.hpp"

namespace tessera::test {

/// Runs `body` on `ranks` ranks and returns the text of the error that ends it; "nothing" if there
/// is none.
template <class Kind>
std::string refusal(int ranks, const std::function<void(World&)>& body) {
  try {
    run_ranks(ranks, body);
  } catch (const Kind& error) { return error.what(); }
  return "nothing";
}

}  // namespace tessera::test
