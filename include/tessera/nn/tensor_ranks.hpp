#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/values.hpp"
#include "tessera/shard/layout.hpp"
#include "tessera/shard/ranges.hpp"
#include "tessera/shard/tensor_part.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera {
class World;
}

namespace tessera::nn {

/// How layers that are cut along the mesh's dimension `tensor` move activations.
struct TensorOptions {
  /// Sequence parallelism: between the products of a layer each rank has some of the rows, for
  /// layer norms and dropout, instead of all of them. Rows are gathered before a column product and
  /// reduced to their ranks after a row product, which moves the bytes of one all-reduce.
  bool sequence_parallel = false;
  /// The number of slices of rows in which a row product is computed: the sum of one slice travels
  /// while the next one is multiplied. Slices are whole multiples of 8 rows, so that there may be
  /// fewer. fp32 products on a CPU keep their bits; the order of sums of others may depend on the
  /// number of rows (kernels::matmul).
  int slices = 1;

  friend bool operator==(const TensorOptions&, const TensorOptions&) = default;
};

/// The ranks along the dimension `tensor` of a model's mesh, which compute a layer together, and
/// the collectives with which they exchange activations. It is a value: copies share the channel.
/// Made without arguments it stands for one rank alone, which has everything and moves nothing.
///
///   column product    each rank multiplies all rows by its columns of W
///   row product       each rank multiplies its columns of x by its rows of W; `sum` adds the parts
///
/// Order:   the constructor, `gather`, `sum`, `begin_sum` and `all_gather` are collective.
/// Time:    they enqueue on a channel of their own. Work that is enqueued on the compute stream
///          afterwards waits for the result, that of `begin_sum` after `end_sum`.
/// Memory:  what travels belongs to the caller, who calls World::quiesce before freeing it.
/// Bits:    parts are added in rank order in fp32, as Batch says, and all ranks get the same bits.
/// Threads: those of the World's compute stream.
class TensorRanks {
 public:
  TensorRanks() = default;
  /// *Collective over all ranks of the World.* `mesh` is ModelOptions::mesh; without a dimension
  /// `tensor` the result is one rank alone. It borrows the World.
  ///
  /// Errors: ConfigError for slices below 1, for an option that has no effect with one rank, and as
  ///         Mesh.
  TensorRanks(World& world, const std::vector<MeshDim>& mesh, TensorOptions options = {});
  /// Returns the same without a channel, to ask layers for sizes: it is not collective, and no
  /// collective may be called. Errors: as the constructor.
  [[nodiscard]] static TensorRanks without_channel(World& world, const std::vector<MeshDim>& mesh,
                                                   TensorOptions options = {});

  /// Returns this rank's place.
  [[nodiscard]] TensorRank place() const noexcept;
  /// Returns the number of ranks.
  [[nodiscard]] int size() const noexcept { return place().size; }
  /// Returns this rank's place among them.
  [[nodiscard]] int index() const noexcept { return place().index; }
  /// Returns the options, the defaults for one rank.
  [[nodiscard]] TensorOptions options() const noexcept;

  /// Returns which of `rows` rows this rank has between the products: with sequence parallelism
  /// those from rows * index / size on, otherwise all.
  [[nodiscard]] Range own(std::int64_t rows) const noexcept;
  /// Returns what the ranks add to the gradient of a parameter that is used row by row between the
  /// products, such as a norm's weight: parts with sequence parallelism.
  [[nodiscard]] TensorGradient row_gradient() const noexcept;

  /// Fills in the other ranks' rows of x [rows, columns], of which each has its own. Without
  /// sequence parallelism nothing happens.
  void gather(Values x, std::int64_t rows, std::int64_t columns) const;
  /// Does the same where this rank's rows lie in `mine`, and copies them first.
  void gather(ConstValues mine, Values x, std::int64_t rows, std::int64_t columns) const;
  /// Copies this rank's rows of x [rows, columns] to `mine`. Without sequence parallelism nothing
  /// happens.
  void copy_own(ConstValues x, Values mine, std::int64_t rows, std::int64_t columns) const;
  /// Adds the ranks' x [rows, columns]. Each rank has the sum of its own rows afterwards; with
  /// sequence parallelism its other rows are undefined.
  void sum(Values x, std::int64_t rows, std::int64_t columns) const;
  /// Begins `sum` for the rows `some` alone.
  void begin_sum(Values x, std::int64_t rows, std::int64_t columns, Range some) const;
  /// Makes the compute stream wait for all sums that have begun.
  void end_sum() const;
  /// Fills in the other ranks' parts of `parts` [size, elems].
  void all_gather(float* parts, std::int64_t elems) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: one rank
};

}  // namespace tessera::nn
