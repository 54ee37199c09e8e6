#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// One dimension of a mesh: its name, and the number of ranks along it.
struct MeshDim {
  std::string name;  ///< "replicate", "shard", "tensor" or "pipe"
  int size = 1;      ///< the number of ranks along it, 1 or more

  friend bool operator==(const MeshDim&, const MeshDim&) = default;
};

/// The groups into which some dimensions of a mesh divide its ranks: ranks of one group differ only
/// along these dimensions. MeshShape::along makes it. It is pure arithmetic.
class MeshGroups {
 public:
  /// Returns the dimensions, in the order of MeshShape's table: "shard", "replicate x tensor".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns the number of ranks in each group.
  [[nodiscard]] int size() const noexcept { return ranks_of(inside_); }
  /// Returns the number of groups.
  [[nodiscard]] int count() const noexcept { return ranks_of(outside_); }
  /// Returns the number of `rank`'s group, from 0 to count() - 1.
  [[nodiscard]] int group_of(int rank) const noexcept { return place(outside_, rank); }
  /// Returns the place of `rank` in its group, from 0 to size() - 1. Places ascend with ranks.
  [[nodiscard]] int index_of(int rank) const noexcept { return place(inside_, rank); }
  /// Returns `group_of` of all ranks of the mesh, by rank, in less time than asking for each.
  [[nodiscard]] std::vector<int> groups() const;
  /// Returns the ranks of `rank`'s group, including `rank`, in ascending order.
  [[nodiscard]] std::vector<int> members(int rank) const;

 private:
  friend class MeshShape;
  /// The size of a dimension, and the difference between ranks that are neighbours along it.
  struct Step {
    int size = 1;
    int stride = 1;
  };
  [[nodiscard]] static int ranks_of(const std::vector<Step>& steps) noexcept;
  [[nodiscard]] static int place(const std::vector<Step>& steps, int rank) noexcept;

  std::string name_;
  std::vector<Step> inside_;   // the dimensions that a group has, in the order of the mesh
  std::vector<Step> outside_;  // the others
};

/// The arrangement of a job's ranks along named dimensions. The first dimension varies slowest:
/// ranks next to each other are neighbours along the last. It is pure arithmetic.
///
///     {{"replicate", 2}, {"shard", 4}}     shard        0 1 2 3
///                                          replicate 0  0 1 2 3
///                                          replicate 1  4 5 6 7
///
/// | dimension | its ranks |
/// |---|---|
/// | `replicate` | keep copies of the model states, and compute with different data |
/// | `shard` | share one copy of the model states, and compute with different data |
/// | `tensor` | share the computation of a layer, with the same data |
/// | `pipe` | each compute some of the layers, with the same data |
///
/// A dimension that a mesh does not name has size 1.
class MeshShape {
 public:
  /// Makes a mesh of `dims`, the first varying slowest. Throws ConfigError if there is no
  /// dimension, a name is not in the table or is given twice, a size is below 1, or there are more
  /// than 2^31 - 1 ranks.
  explicit MeshShape(std::vector<MeshDim> dims);

  /// Returns the dimensions, in the order given.
  [[nodiscard]] const std::vector<MeshDim>& dims() const noexcept { return dims_; }
  /// Returns the number of ranks, which is the product of all sizes.
  [[nodiscard]] int ranks() const noexcept;
  /// Returns the number of ranks that compute with different data: those along `replicate` and
  /// `shard`. Gradients and losses are averaged over them.
  [[nodiscard]] int data_ranks() const;
  /// Returns the place of `rank` among the data ranks, from 0 to data_ranks() - 1. Ranks that
  /// differ only along `tensor` and `pipe` have the same place; otherwise places ascend with ranks.
  /// Throws ContractError if the mesh has no such rank.
  [[nodiscard]] int data_index(int rank) const;
  /// Returns the number of ranks along `name`, or 1 if the mesh does not name it. Throws
  /// ConfigError for a name that is not in the table.
  [[nodiscard]] int size(std::string_view name) const;
  /// Returns the place of `rank` along `name`, from 0 to size(name) - 1. Throws ConfigError as
  /// `size`, and ContractError if the mesh has no such rank.
  [[nodiscard]] int index(std::string_view name, int rank) const;
  /// Returns the place of `rank` along each of `dims`, in their order. Throws ContractError if the
  /// mesh has no such rank.
  [[nodiscard]] std::vector<int> coordinates_of(int rank) const;
  /// Returns the groups along the dimensions `names`, in any order. Throws ConfigError for a name
  /// that is not in the table or is given twice.
  [[nodiscard]] MeshGroups along(const std::vector<std::string_view>& names) const;
  /// Returns a text such as "replicate 2 x shard 4".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const MeshShape&, const MeshShape&) = default;

 private:
  std::vector<MeshDim> dims_;
};

/// Throws ConfigError that names both numbers unless `shape` has `ranks` ranks.
void require_ranks(const MeshShape& shape, int ranks);

}  // namespace tessera
