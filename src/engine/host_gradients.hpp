#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "engine/unit_state.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The reduced gradients of offloaded units in the rank's host pool: what this rank's optimizer
/// updates of them. They come when they have been reduced, beside backward.
///
///   on the device --take--> copied by the lane of states --> added and squared on the host stream
///
/// Time:    everything enqueues.
/// Memory:  all of it taken in the constructor, in the host pool: the gradients, room for two units
///          on their way if micro-batches are added here, and a double for each span of a norm.
class HostGradients {
 public:
  using RangeOf = std::function<Range(std::size_t unit, std::size_t segment)>;
  using ViewOf = std::function<View(std::size_t segment)>;

  struct Options {
    RangeOf updated;          ///< which elements of a segment are kept
    bool norms = false;       ///< whether they are kept nowhere else, so that norms are made here
    bool accumulate = false;  ///< whether several micro-batches come
    std::vector<int> shards;  ///< whose squared norms this rank computes
  };

  HostGradients(World& world, const std::vector<UnitState>& units, const Options& options);

  /// What is kept of a segment; empty if nothing is.
  [[nodiscard]] View resident(std::size_t unit, std::size_t segment) const {
    return views_[unit][segment];
  }

  /// `gradients(segment)` are what `resident` is to be, or to be added to it unless `first`; they
  /// are done on `producer` and read when the lane of states has come here.
  void take(std::size_t unit, Stream producer, const ViewOf& gradients, bool first);
  /// The unit's gradients of this step are all there.
  void complete(std::size_t unit);
  /// The host has read them for the last time in this step.
  void release(std::size_t unit);

  /// Whether some norm is computed here.
  [[nodiscard]] bool has_norms() const noexcept { return !terms_.empty(); }
  /// Enqueues that the squared norms by shard are added up, in the order of units, and makes
  /// `reader` wait for them.
  [[nodiscard]] const double* sum_norms(Stream reader);
  /// `stream` goes on when everything that was taken is there.
  void settle(Stream stream);

  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return arena_.bytes(); }

 private:
  struct Term {
    std::size_t unit = 0;
    ConstValues gradient;
    std::int64_t elems = 0;
    int shard = 0;
    double* spans = nullptr;
  };
  struct Staging {
    std::byte* data = nullptr;
    OwnedEvent filled;
    OwnedEvent added;
  };

  void allocate(const Options& options);
  void plan_norms(const Options& options);
  void make_staging();
  void copy(std::size_t unit, const ViewOf& gradients);
  void add(std::size_t unit, const ViewOf& gradients);
  [[nodiscard]] Stream lane() const { return world_.offload_stream(CopyLane::states); }

  World& world_;
  const std::vector<UnitState>& units_;
  Arena arena_;
  Arena staging_arena_;
  Arena sums_arena_;
  std::vector<std::vector<View>> views_;  // by unit and segment
  std::array<Staging, 2> staging_;
  std::size_t next_ = 0;  // of staging_
  std::vector<Term> terms_;
  double* sums_ = nullptr;          // by shard
  std::vector<OwnedEvent> copied_;  // by unit: the first micro-batch's
  std::vector<OwnedEvent> read_;    // by unit
  OwnedEvent produced_;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
