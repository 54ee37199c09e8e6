#include "tessera/nn/recompute.hpp"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::nn {

Recompute Recompute::every(std::int64_t k) {
  expects(k >= 1, "Recompute::every: k is at least 1");
  Recompute result;
  result.every_ = k;
  return result;
}

Recompute Recompute::chosen(std::function<bool(std::int64_t)> layer) {
  expects(layer != nullptr, "Recompute::chosen: the choice is empty");
  Recompute result;
  result.chosen_ = std::move(layer);
  return result;
}

bool Recompute::applies_to(std::int64_t layer) const {
  if (chosen_) { return chosen_(layer); }
  return every_ > 0 && layer % every_ == 0;
}

std::string Recompute::describe() const {
  if (chosen_) { return "chosen"; }
  if (every_ == 0) { return "none"; }
  return every_ == 1 ? "block" : fmt::format("every:{}", every_);
}

}  // namespace tessera::nn
