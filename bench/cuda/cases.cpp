#include "bench/cuda/cases.hpp"

#include <fmt/format.h>

namespace tessera::bench {

std::string CudaSizes::activations() const {
  return fmt::format("{} tokens in sequences of {}, hidden {}", tokens(), seq, hidden());
}

std::string CudaContest::title() const {
  return group == "products" ? fmt::format("{}, {}", name, shape) : name;
}

}  // namespace tessera::bench
