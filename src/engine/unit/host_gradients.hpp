#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "tessera/world/world.hpp"
#include "world/host_pool.hpp"

namespace tessera::engine {

class HostGradientPool;

/// The squared norm of one shard of a segment whose gradients are in the host pool.
struct HostNorm {
  ConstValues gradient;
  std::int64_t elems = 0;
  int shard = 0;
  double* spans = nullptr;  ///< partial sums
};

/// The reduced gradients, in the host pool, of one unit that the host updates: the elements that
/// this rank's optimizer updates. They arrive after their reduction, beside backward.
///
///   on the device --keep--> copied by the stream of states --> added and squared on the host
///
/// Time: everything enqueues.
class HostGradients {
 public:
  using ViewOf = std::function<View(std::size_t segment)>;

  HostGradients(World& world, const UnitPlan& plan, HostGradientPool& pool);

  /// What is kept of a segment: elements `Owned::updates`.
  [[nodiscard]] View resident(std::size_t segment) const { return views_[segment]; }

  /// `gradients(segment)` become `resident` if `first`, and are added to it otherwise. They are
  /// complete on `producer`, and read once the stream of states gets here.
  void keep(Stream producer, const ViewOf& gradients, bool first);
  /// All gradients of this step have been handed to `keep`.
  void complete();
  /// The host has read them for the last time in this step.
  void release();
  /// `reader` waits for the host stream's work so far.
  void order_after_host(Stream reader);

 private:
  friend class HostGradientPool;
  void copy(const ViewOf& gradients);
  void add(const ViewOf& gradients);

  world::HostPool host_;
  const UnitPlan& plan_;
  HostGradientPool& pool_;
  std::vector<View> views_;      // by segment
  std::vector<HostNorm> norms_;  // those computed here
  OwnedEvent copied_;            // recorded after the first micro-batch's copy
  OwnedEvent read_;
};

/// The gradients of all units that the host updates, and what these units share.
///
/// Memory:  all of it taken in the constructor, in the host pool: the gradients, room for two units
///          in transit if micro-batches are added here, and a double for each span of a norm.
class HostGradientPool {
 public:
  struct Options {
    bool norms =
        false;  ///< whether norms are computed here, because the gradients are kept nowhere else
    bool accumulate = false;  ///< whether a step has several micro-batches
    std::vector<int> shards;  ///< the shards whose squared norms this rank computes
    int all_shards = 1;       ///< shards of a segment
  };

  HostGradientPool(World& world, const UnitPlans& plans, const Options& options);

  [[nodiscard]] HostGradients& of(std::size_t unit) { return *units_[unit]; }

  /// Whether any norm is computed here.
  [[nodiscard]] bool has_norms() const noexcept { return sums_ != nullptr; }
  /// Enqueues the sum of the squared norms by shard, in unit order, and makes `reader` wait for it.
  [[nodiscard]] const double* sum_norms(Stream reader);
  /// `stream` waits until everything handed to `keep` has arrived.
  void settle(Stream stream);

  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return kept_.bytes(); }

 private:
  friend class HostGradients;
  /// Room for a unit's gradients in transit.
  struct Staging {
    std::byte* data = nullptr;
    OwnedEvent filled;
    OwnedEvent added;
  };

  void allocate();
  void plan_norms(const Options& options);
  void make_staging();
  [[nodiscard]] Staging& next_staging() noexcept;
  [[nodiscard]] Stream copies() const { return host_.copy_stream(world::CopyKind::states); }

  World& world_;
  world::HostPool host_;
  std::vector<std::unique_ptr<HostGradients>> units_;  // null where the device updates
  Arena kept_;
  Arena staging_arena_;
  Arena sums_arena_;
  std::array<Staging, 2> staging_;
  std::size_t next_ = 0;  // index into staging_
  int all_shards_;
  double* sums_ = nullptr;  // by shard
  OwnedEvent produced_;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
