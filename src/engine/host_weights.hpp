#pragma once

#include <cstddef>
#include <vector>

#include "engine/gradient_store.hpp"
#include "engine/parameter_store.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The fp32 weights of offloaded units in the rank's host pool, as far as this rank's optimizer
/// updates them, and for parameters of 16 bits the rounded copies that go to the device. In fp32
/// training the device's parameters are copies of these.
///
/// Memory: all of it taken in the constructor, in the host pool; it holds anything.
class HostWeights {
 public:
  HostWeights(World& world, const Units& units, ParameterStore& parameters,
              const GradientStore& gradients);

  /// The fp32 weights of elements `GradientStore::resident_range`; empty if none are here.
  [[nodiscard]] View master(std::size_t unit, std::size_t segment) const {
    return segments_[unit][segment].master;
  }
  /// Their copies in the parameters' dtype; empty if that is fp32.
  [[nodiscard]] View rounded(std::size_t unit, std::size_t segment) const {
    return segments_[unit][segment].rounded;
  }

  /// Brings what the device's parameters are, on the compute stream, and waits: before the first
  /// update.
  void copy_parameters(std::size_t unit);
  /// The device's parameters may be overwritten: nothing that is enqueued so far reads them later.
  void begin_update();
  /// Sends the unit back when the host stream has come here. Whoever uses its parameters waits for
  /// their arrival (ParameterStore).
  void send(std::size_t unit);

  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return arena_.bytes(); }

 private:
  struct Segment {
    View master;
    View rounded;
    View parameter;  // on the device

    [[nodiscard]] View sent() const noexcept { return rounded.elems > 0 ? rounded : master; }
  };

  World& world_;
  const Units& units_;
  ParameterStore& parameters_;
  Arena arena_;
  std::vector<std::vector<Segment>> segments_;  // by unit
  std::vector<OwnedEvent> updated_;             // by unit
  OwnedEvent readers_;
};

}  // namespace tessera::engine
