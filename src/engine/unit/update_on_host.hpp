#pragma once

#include "engine/unit/update_home.hpp"
#include "world/host_pool.hpp"

namespace tessera::engine {

/// The optimizer's kernels run on the host stream, over the rank's host pool: the fp32 weights that
/// this rank updates, and for 16-bit parameters the rounded copies that go to the device. In fp32
/// training the device's parameters are copies of the weights. Later work that uses the parameters
/// waits for their arrival (ParameterHome).
class UpdateOnHost final : public UpdateHome {
 public:
  UpdateOnHost(World& world, const UnitPlan& plan, ParameterHome& parameters,
               HostGradients& gradients, Arena& arena);

  UpdatedSegment updated(std::size_t segment) const override;
  FirstValue first_masters(std::size_t segment) const override;
  /// Copies the device's parameters to the host, and waits.
  void begin() override;
  void update(const UpdateRule& rule, UpdateRuns& together) override;
  [[nodiscard]] Stream state_writer() const override;

  /// Bytes of the arena that the weights of `plan` use.
  [[nodiscard]] static std::size_t weight_bytes(const UnitPlan& plan);

 private:
  struct Segment {
    View master;
    View rounded;
    View parameter;  // on the device

    [[nodiscard]] View sent() const noexcept { return rounded.elems > 0 ? rounded : master; }
  };
  [[nodiscard]] static Segment without_memory(const UnitPlan& plan, std::size_t segment);
  void send();

  World& world_;
  world::HostPool host_;
  ParameterHome& parameters_;
  HostGradients& gradients_;
  std::vector<Segment> segments_;
  OwnedEvent updated_;
};

}  // namespace tessera::engine
