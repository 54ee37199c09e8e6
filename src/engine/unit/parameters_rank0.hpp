#pragma once

#include "engine/unit/parameter_home.hpp"

namespace tessera::engine {

/// Rank 0 keeps the unit; each round of passes begins with a copy to every other rank, like
/// DataParallel's replicas (dp). The others hold their copy as borrowed `gather` memory.
class Rank0Parameters final : public ParameterHome {
 public:
  /// `base`: memory for the whole unit.
  Rank0Parameters(const UnitPlan& plan, GatherLane& lane, void* base);

  View resident(std::size_t segment) const override;
  View whole(std::size_t segment) const override;
  Category category() const override;
  void await() override;
  void copy_from_rank0() override;

 private:
  void* base_;
  OwnedEvent ready_;  // recorded when the copy has arrived
};

}  // namespace tessera::engine
