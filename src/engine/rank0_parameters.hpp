#pragma once

#include <vector>

#include "engine/parameter_store.hpp"

namespace tessera::engine {

/// Rank 0 keeps every parameter; each micro-batch begins with a copy to every other rank, as
/// DataParallel's replicas (dp), unit by unit in the order of its forward pass. The others hold
/// their copies as borrowed `gather` memory.
class Rank0Parameters final : public ParameterStore {
 public:
  Rank0Parameters(World& world, const Units& units, Journal& journal);

  View resident(std::size_t unit, std::size_t segment) const override;
  Range resident_range(std::size_t unit, std::size_t segment) const override;
  View whole(std::size_t unit, std::size_t segment) const override;
  bool held(std::size_t) const override { return true; }
  bool can_fetch(std::size_t) const override { return false; }
  void fetch(std::size_t) override {}
  void await(std::size_t unit) override;
  void release(std::size_t, Stream) override {}
  void begin_micro_batch() override;
  void updated(std::span<const std::size_t> forward) override {
    forward_.assign(forward.begin(), forward.end());
  }
  Category category() const noexcept override {
    return world_.rank() == 0 ? Category::parameters : Category::gather;
  }
  std::size_t persistent_bytes() const noexcept override;

 private:
  Arena arena_;
  std::vector<std::size_t> forward_;  // the order of the copies
  std::vector<void*> base_;           // by unit
  std::vector<OwnedEvent> ready_;     // by unit: its copy has arrived
};

}  // namespace tessera::engine
