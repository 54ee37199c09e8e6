#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/plan/unit_plan.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// This rank's array of a segment's state, moved as bytes whatever its type.
struct MovedArray {
  View words;  ///< fp32 words
  bool on_host = false;
};

/// Moves state between the ranks of a model, between steps: from a rank that has written an array
/// to those that hold copies, in place; and from ranks that hold parts of a parameter to all of
/// them, in the memory of the host.
///
/// Order:   all calls are collective over the ranks that they name.
/// Time:    calls enqueue between the compute stream's earlier and later work; what goes through
///          the memory of the host is done on return.
/// Memory:  device memory for arrays of the host pool (1 MiB), or for a whole parameter to be
///          joined, from the first such call on. `join` copies a whole parameter on the host.
class StateMover {
 public:
  StateMover(World& world, const Sharding& sharding);

  /// Ranks that keep the same shards have each written one of them: part r of each array, in equal
  /// parts, is replica r's.
  void among_replicas(const std::string& unit, const std::vector<MovedArray>& arrays);
  /// The first rank along `tensor` has written the arrays.
  void along_tensor(const std::vector<MovedArray>& arrays);
  /// The first of the places along `pipe` that share a unit has written the arrays. Ranks at other
  /// places call it too, without arrays.
  void along_pipe(const std::vector<int>& places, const std::vector<MovedArray>& arrays);
  /// Ranks that gather together have each updated their part of the parameters, which all keep
  /// whole: elements `kept` of each segment.
  void whole_parameters(const UnitPlan& unit, const std::vector<View>& segments);

  /// Whether ranks along `tensor` or `pipe` have parts of parameter `p` of `unit`, so that `join`
  /// must be called.
  [[nodiscard]] bool joins(const UnitPlan& unit, std::size_t p) const;
  /// Writes all of parameter `p` to `whole`, on the ranks along `tensor` and `pipe`. `part` is this
  /// rank's part; it is ignored where the unit is elsewhere.
  void join(const UnitPlan& unit, std::size_t p, ConstView part, std::span<float> whole);

 private:
  void submit(const Channel& channel, Batch batch);
  void broadcast(const Channel& channel, const MovedArray& array);
  void gather_through_device(View all);
  void gather_parts(const std::string& unit, const std::vector<TensorPart>& parts, ConstView part,
                    View staged);
  [[nodiscard]] std::vector<TensorPart> parts_of(const ParameterSpec& spec) const;
  [[nodiscard]] View staging(std::int64_t elems, DType dtype, const char* what);

  World& world_;
  const Sharding& sharding_;
  OwnedEvent mark_;
  std::optional<Channel> along_tensor_;
  std::optional<Channel> replicas_;  // from first use on
  std::optional<Channel> stages_;    // the same, of all places along `pipe`
  Buffer staging_;
};

}  // namespace tessera::engine
