#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/base/shape.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera {

/// Parameters start on multiples of this many elements, or of LayoutOptions::align_elems, and every
/// rank's shard is a multiple of it, so that every companion buffer (low-precision copy, fp32
/// master, gradient, moments) is cut alike and a shard is at least 128 bytes in 16-bit dtypes.
inline constexpr std::int64_t kAlignElems = 64;

/// A tensor that belongs to another unit: `unit` must be registered before. One storage, one
/// gradient.
struct TiedTo {
  std::string unit;
  std::string parameter;
};

/// One parameter as its author declares it.
struct ParameterSpec {
  std::string name;  ///< unique in its unit
  Shape shape;
  bool trainable = true;               ///< false: frozen, neither gradient nor optimizer state
  std::optional<DType> dtype = {};     ///< compute dtype of this parameter, if not the model's
  std::optional<TiedTo> tied_to = {};  ///< an alias; the owner decides all but the shape,
                                       ///< which must be equal
  /// Elements that its place has at least, for kernels that read or write beyond its end: whole
  /// rows of a product, say. What exceeds the shape holds zeros: the trainer may write zeros there,
  /// into parameters and gradients, and nothing else. Counted in every arena, and in no number of
  /// parameters, export, file or initialiser. An alias has its owner's.
  std::int64_t room = 0;
};

/// The dtypes of one segment and its companions.
struct SegmentDTypes {
  DType parameter = DType::fp32;  ///< what kernels compute with
  DType gradient = DType::fp32;   ///< what backward adds into
  DType reduce = DType::fp32;     ///< on the wire
  DType master = DType::fp32;     ///< what the optimizer updates

  friend bool operator==(const SegmentDTypes&, const SegmentDTypes&) = default;
};

/// Where one parameter lies in its segment.
struct Placement {
  std::size_t parameter = 0;  ///< index in the unit's list of specs
  std::int64_t first = 0;     ///< first element in the segment, a multiple of the alignment
  std::int64_t elems = 0;
  std::int64_t room = 0;  ///< ParameterSpec::room

  /// What no other parameter may lie in.
  [[nodiscard]] std::int64_t end() const noexcept { return first + (room > elems ? room : elems); }
};

/// A run of elements that belong to one parameter and to what one rank owns.
struct Piece {
  std::size_t parameter = 0;
  std::int64_t first_in_parameter = 0;
  std::int64_t first_in_shard = 0;  ///< in the elements that the rank owns, laid end to end
  std::int64_t elems = 0;
};

/// One flat parameter: parameters of equal dtypes and trainability, laid end to end in the order
/// of declaration, padded so that N equal shards cover it.
///
///   shard_elems  = round_up(ceil(elems / N), align)
///   padded_elems = shard_elems * N
///
/// where `elems` counts the room of parameters and the gaps between them. Any N, any shapes, also N
/// > elems (some shards are then padding only), also elems == 0.
class SegmentLayout {
 public:
  SegmentLayout(SegmentDTypes dtypes, bool trainable, std::vector<Placement> placements,
                std::int64_t elems, int ranks, std::int64_t align_elems = kAlignElems);

  [[nodiscard]] const SegmentDTypes& dtypes() const noexcept { return dtypes_; }
  [[nodiscard]] bool trainable() const noexcept { return trainable_; }
  [[nodiscard]] std::span<const Placement> placements() const noexcept { return placements_; }
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  [[nodiscard]] std::int64_t shard_elems() const noexcept { return shard_elems_; }
  [[nodiscard]] std::int64_t padded_elems() const noexcept { return shard_elems_ * ranks_; }
  /// Rank r's part of the segment: [r * shard_elems, (r + 1) * shard_elems).
  [[nodiscard]] Range shard(int rank) const noexcept;
  /// What the elements `owned` hold, in order; padding belongs to no piece.
  [[nodiscard]] std::vector<Piece> pieces(const Ranges& owned) const;
  /// What rank r's shard holds. ContractError if there is no such rank.
  [[nodiscard]] std::vector<Piece> pieces(int rank) const;
  /// The elements that belong to no parameter: room, alignment gaps and the tail.
  [[nodiscard]] Ranges padding() const;

 private:
  SegmentDTypes dtypes_;
  bool trainable_;
  std::vector<Placement> placements_;
  std::int64_t elems_;
  int ranks_;
  std::int64_t shard_elems_;
};

struct LayoutOptions {
  // Dtypes for a unit's parameters unless a parameter says otherwise.
  DType compute = DType::fp32;
  DType gradient = DType::fp32;
  DType reduce = DType::fp32;
  std::int64_t align_elems = kAlignElems;  ///< a multiple of kAlignElems
};

/// How one unit's own parameters are laid out and cut: a list of segments. The same for every
/// strategy at a given number of ranks. Pure arithmetic.
class UnitLayout {
 public:
  /// Segments come in the order in which their (dtypes, trainable) combination first appears.
  /// Aliases (`tied_to`) take no place. ContractError on an empty or repeated parameter name, a
  /// negative room, or ranks < 1.
  static UnitLayout make(std::vector<ParameterSpec> specs, const LayoutOptions& options, int ranks);

  [[nodiscard]] std::span<const ParameterSpec> specs() const noexcept { return specs_; }
  [[nodiscard]] std::span<const SegmentLayout> segments() const noexcept { return segments_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  struct Location {
    std::size_t segment;
    std::int64_t first;  ///< in the segment
  };
  /// Where parameter `index` lies; empty for an alias.
  [[nodiscard]] std::optional<Location> locate(std::size_t index) const;
  /// The index of the parameter called `name`; empty if there is none.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept;

  /// Distinct elements without padding: what a paper calls the number of parameters.
  [[nodiscard]] std::int64_t parameter_elems() const noexcept;
  /// One line per entry, the same on every rank that declared the same unit; compared across ranks.
  [[nodiscard]] std::string describe() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<SegmentLayout> segments_;
  LayoutOptions options_;
  int ranks_ = 1;
};

}  // namespace tessera
