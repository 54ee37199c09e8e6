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

/// How layers that are cut along the mesh's dimension `tensor` exchange activations.
struct TensorOptions {
  /// Sequence parallelism: layer norms and dropout run on some of the rows on each rank, instead of
  /// all rows on every rank. Rows are gathered before a column product and reduced to their ranks
  /// after a row product. Together this moves the bytes of one all-reduce.
  bool sequence_parallel = false;
  /// The number of slices of rows in which a row product is computed: the sum of one slice is
  /// communicated while the next slice is multiplied. Slices are multiples of 8 rows, so that there
  /// may be fewer. On a CPU they change no bit; on CUDA the order of sums may depend on the number
  /// of rows (kernels::matmul).
  int slices = 1;

  friend bool operator==(const TensorOptions&, const TensorOptions&) = default;
};

/// The ranks along the dimension `tensor` of a model's mesh, which compute a layer together, and
/// the collectives with which they exchange activations. It is a value: copies share the channel. A
/// default-constructed object is a single rank, which computes whole layers and exchanges nothing.
///
///     column product    each rank multiplies all rows by its columns of W
///     row product       each rank multiplies its columns of x by its rows of W; `sum` adds these
///
/// Order:   the constructor, `gather`, `sum`, `begin_sum` and `all_gather` are collective.
/// Time:    they enqueue on a channel of their own. Work that is enqueued on the compute stream
///          afterwards waits for the result; for the result of `begin_sum` it waits after
///          `end_sum`.
/// Memory:  the arrays belong to the caller, who calls World::quiesce before freeing them.
/// Bits:    parts are added in rank order in fp32, as Batch says, and all ranks get the same bits.
/// Threads: those of the World's compute stream.
class TensorRanks {
 public:
  /// A single rank.
  TensorRanks() = default;
  /// *Collective over all ranks of the World.* Makes the channel of the ranks along `tensor`.
  /// `mesh` is ModelOptions::mesh; without a dimension `tensor` the result is a single rank. It
  /// borrows the World.
  ///
  /// Errors: ConfigError for slices below 1, for an option that has no effect with one rank, and as
  ///         Mesh.
  TensorRanks(World& world, const std::vector<MeshDim>& mesh, TensorOptions options = {});
  /// Returns the ranks without a channel, to ask layers for sizes: it is not a collective call, and
  /// the result's collectives must not be called. Throws ConfigError as the constructor.
  [[nodiscard]] static TensorRanks without_channel(World& world, const std::vector<MeshDim>& mesh,
                                                   TensorOptions options = {});

  /// Returns this rank's index along `tensor` and the number of ranks.
  [[nodiscard]] TensorRank place() const noexcept;
  /// Returns the number of ranks along `tensor`.
  [[nodiscard]] int size() const noexcept { return place().size; }
  /// Returns this rank's index along `tensor`, from 0 to size() - 1.
  [[nodiscard]] int index() const noexcept { return place().index; }
  /// Returns the options; the defaults for a single rank.
  [[nodiscard]] TensorOptions options() const noexcept;

  /// Returns the rows, of `rows`, that this rank has between the products: with sequence
  /// parallelism rows * index / size up to rows * (index + 1) / size, otherwise all.
  [[nodiscard]] Range own(std::int64_t rows) const noexcept;
  /// Returns how ranks compute the gradient of a parameter that is used row by row between the
  /// products, such as a norm's weight: in parts with sequence parallelism, otherwise equally.
  [[nodiscard]] TensorGradient row_gradient() const noexcept;

  /// Gathers the rows of x [rows, columns]: each rank's own rows must be filled in, and all are
  /// afterwards. Without sequence parallelism nothing happens.
  void gather(Values x, std::int64_t rows, std::int64_t columns) const;
  /// Copies this rank's own rows from `mine` to x [rows, columns], and gathers the others. Without
  /// sequence parallelism nothing happens.
  void gather(ConstValues mine, Values x, std::int64_t rows, std::int64_t columns) const;
  /// Copies this rank's own rows of x [rows, columns] to `mine`. Without sequence parallelism
  /// nothing happens.
  void copy_own(ConstValues x, Values mine, std::int64_t rows, std::int64_t columns) const;
  /// Adds the ranks' x [rows, columns]. Each rank then has the sum of its own rows; with sequence
  /// parallelism its other rows are undefined.
  void sum(Values x, std::int64_t rows, std::int64_t columns) const;
  /// Begins `sum` for the rows `some` only.
  void begin_sum(Values x, std::int64_t rows, std::int64_t columns, Range some) const;
  /// Makes the compute stream wait for all sums that have begun.
  void end_sum() const;
  /// Gathers `parts` [size, elems]: each rank's own part must be filled in, and all are afterwards.
  void all_gather(float* parts, std::int64_t elems) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: one rank
};

}  // namespace tessera::nn
