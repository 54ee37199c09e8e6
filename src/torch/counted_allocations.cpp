#include "torch/counted_allocations.hpp"

namespace tessera::torch {

CountedAllocations::CountedAllocations(World& /*world*/) : before_{nullptr} {}
CountedAllocations::~CountedAllocations() = default;

}  // namespace tessera::torch
