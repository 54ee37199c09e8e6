#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// One dimension of a mesh: its name, and how many ranks lie along it.
struct MeshDim {
  std::string name;
  int size = 1;

  friend bool operator==(const MeshDim&, const MeshDim&) = default;
};

/// The groups into which some dimensions of a mesh divide its ranks: the ranks of a group differ in
/// these dimensions alone. Made by MeshShape::along. Pure arithmetic.
class MeshGroups {
 public:
  /// The dimensions, in the order of MeshShape's table: "shard", "replicate x tensor".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// How many ranks each group has.
  [[nodiscard]] int size() const noexcept { return ranks_of(inside_); }
  /// How many groups there are.
  [[nodiscard]] int count() const noexcept { return ranks_of(outside_); }
  /// The number of `rank`'s group, from 0 to count() - 1.
  [[nodiscard]] int group_of(int rank) const noexcept { return place(outside_, rank); }
  /// The place of `rank` in its group, from 0 to size() - 1. Places ascend with ranks.
  [[nodiscard]] int index_of(int rank) const noexcept { return place(inside_, rank); }
  /// The ranks of `rank`'s group in ascending order, `rank` among them.
  [[nodiscard]] std::vector<int> members(int rank) const;

 private:
  friend class MeshShape;
  /// A dimension: its size, and by how much ranks differ that are neighbours along it.
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

/// How the ranks of a job are arranged: along named dimensions, of which the first is the slowest,
/// so that ranks next to each other are neighbours along the last. Pure arithmetic.
///
///   {{"replicate", 2}, {"shard", 4}}     shard        0 1 2 3
///                                        replicate 0  0 1 2 3
///                                        replicate 1  4 5 6 7
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
  /// ConfigError if there is no dimension, a name is not in the table or is given twice, a size is
  /// below 1, or there are more than 2^31 - 1 ranks.
  explicit MeshShape(std::vector<MeshDim> dims);

  [[nodiscard]] const std::vector<MeshDim>& dims() const noexcept { return dims_; }
  /// The product of all sizes.
  [[nodiscard]] int ranks() const noexcept;
  /// The ranks that compute with different data: those along `replicate` and `shard`. Gradients and
  /// losses are averaged over them.
  [[nodiscard]] int data_ranks() const;
  /// How many ranks lie along `name`; 1 if the mesh does not name it. ConfigError for a name that
  /// is not in the table.
  [[nodiscard]] int size(std::string_view name) const;
  /// Where `rank` lies along `name`, from 0 to size(name) - 1. ConfigError as `size`.
  [[nodiscard]] int index(std::string_view name, int rank) const;
  /// Where `rank` lies along each of `dims`, in their order.
  [[nodiscard]] std::vector<int> coordinates_of(int rank) const;
  /// The groups along the dimensions `names`, in any order. ConfigError for a name that is not in
  /// the table, or is given twice.
  [[nodiscard]] MeshGroups along(const std::vector<std::string_view>& names) const;
  /// "replicate 2 x shard 4".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const MeshShape&, const MeshShape&) = default;

 private:
  std::vector<MeshDim> dims_;
};

/// ConfigError, which names both numbers, unless `shape` has `ranks` ranks.
void require_ranks(const MeshShape& shape, int ranks);

}  // namespace tessera
