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
#include "tessera/shard/tensor_part.hpp"

namespace tessera {

/// The default alignment, in elements. Parameters start on multiples of it, or of
/// LayoutOptions::align_elems, and every rank's shard is a multiple of it. Every companion buffer
/// (low-precision copy, fp32 master, gradient, moments) is then cut alike, and a shard is at least
/// 128 bytes in 16-bit dtypes.
inline constexpr std::int64_t kAlignElems = 64;

/// The owner of a tied parameter, in a unit that was declared before. Alias and owner are one
/// tensor with one gradient.
struct TiedTo {
  std::string unit;       ///< the name of the owning unit
  std::string parameter;  ///< the name of the parameter within it
};

/// How ranks along the mesh's dimension `tensor` compute the gradient of a parameter that they all
/// have whole.
enum class TensorGradient : std::uint8_t {
  equal,  ///< Each rank computes the whole gradient, with the same bits.
  part,   ///< Each rank computes a part, such as its slice of a sequence. `step` adds the parts.
};

/// One parameter as its author declares it.
struct ParameterSpec {
  std::string name;                    ///< unique in its unit
  Shape shape;                         ///< extents of the whole parameter, also if it is cut
  bool trainable = true;               ///< false: frozen, without gradient or optimizer state
  std::optional<DType> dtype = {};     ///< compute dtype of this parameter, if not the model's
  std::optional<TiedTo> tied_to = {};  ///< makes it an alias; the owner has equal shape and cut
  /// The least number of elements that the parameter's place holds, for kernels that read or write
  /// beyond its end, for instance whole rows of a product. Elements beyond the shape are zero; the
  /// trainer may write only zeros there, in parameters and in gradients. Room takes memory in every
  /// buffer, but parameter counts, exports, files and initialisers leave it out. An alias has its
  /// owner's room. A parameter with room may be cut along dimension 0 only; the last rank's part
  /// then has the room.
  std::int64_t room = 0;
  /// How the mesh's dimension `tensor` cuts the parameter. Empty: every rank along it has all of
  /// it. Scopes hand out the rank's part; initial values, checkpoints, exports and optimizers see
  /// the whole parameter. Without such a dimension it has no effect.
  std::optional<TensorCut> cut = {};
  /// How ranks along `tensor` compute the gradient of a parameter that all of them have whole.
  TensorGradient tensor_gradient = TensorGradient::equal;
};

/// The dtypes of one segment and its companion buffers.
struct SegmentDTypes {
  DType parameter = DType::fp32;  ///< of the parameters that kernels read
  DType gradient = DType::fp32;   ///< of the gradients that backward adds to
  DType reduce = DType::fp32;     ///< of gradients while they are reduced
  DType master = DType::fp32;     ///< of the values that the optimizer updates

  friend bool operator==(const SegmentDTypes&, const SegmentDTypes&) = default;
};

/// How ranks along the mesh's dimension `tensor` share a segment. Without that dimension it is
/// `own`.
enum class TensorKind : std::uint8_t {
  own,     ///< Each rank has elements that no other rank has.
  copies,  ///< All ranks have the same elements, and gradients with the same bits.
  parts,   ///< All ranks have the same elements, and each a part of their gradients.
};

/// The place of one parameter in its segment.
struct Placement {
  std::size_t parameter = 0;  ///< index in the unit's list of specs
  std::int64_t first = 0;     ///< first element in the segment, a multiple of the alignment
  std::int64_t elems = 0;     ///< the elements of the parameter's part
  std::int64_t room = 0;      ///< this part's share of ParameterSpec::room

  /// Returns the end of the place: no other parameter has elements in [first, end()).
  [[nodiscard]] std::int64_t end() const noexcept { return first + (room > elems ? room : elems); }
};

/// A run of elements that belong to one parameter and to one rank.
struct Piece {
  std::size_t parameter = 0;            ///< index in the unit's list of specs
  std::int64_t first_in_parameter = 0;  ///< first element in the parameter's part
  std::int64_t first_in_shard = 0;      ///< index of the first among the elements the rank owns
  std::int64_t elems = 0;               ///< length of the run
};

/// One flat parameter: parameters of equal dtypes, trainability and TensorKind, end to end in the
/// order of declaration, and padded so that N equal shards cover it. It holds this rank's parts of
/// parameters that are cut along `tensor`.
///
///     shard_elems  = round_up(ceil(elems / N), align)
///     padded_elems = shard_elems * N
///
/// Here `elems` counts the room of parameters and the gaps between them. Any N and any shapes are
/// legal, including N > elems (some shards are then padding only) and elems == 0.
class SegmentLayout {
 public:
  /// Makes the layout of `elems` elements with parameters at `placements`, cut for `ranks` ranks.
  /// Throws ContractError unless the alignment is a multiple of kAlignElems up to 2^30, ranks >= 1,
  /// and the placements are aligned, ascending and inside [0, elems).
  SegmentLayout(SegmentDTypes dtypes, bool trainable, std::vector<Placement> placements,
                std::int64_t elems, int ranks, std::int64_t align_elems = kAlignElems,
                TensorKind tensor = TensorKind::own);

  /// Returns the dtypes of the segment and its companion buffers.
  [[nodiscard]] const SegmentDTypes& dtypes() const noexcept { return dtypes_; }
  /// Returns whether the segment's parameters are trained.
  [[nodiscard]] bool trainable() const noexcept { return trainable_; }
  /// Returns how ranks along `tensor` share the segment.
  [[nodiscard]] TensorKind tensor() const noexcept { return tensor_; }
  /// Returns the places of the parameters, in ascending order.
  [[nodiscard]] std::span<const Placement> placements() const noexcept { return placements_; }
  /// Returns the number of elements, without the padding at the end.
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  /// Returns the number of elements of a shard.
  [[nodiscard]] std::int64_t shard_elems() const noexcept { return shard_elems_; }
  /// Returns the number of elements of all shards together.
  [[nodiscard]] std::int64_t padded_elems() const noexcept { return shard_elems_ * ranks_; }
  /// Returns the part of the segment that `rank` owns, which begins at rank * shard_elems and has
  /// shard_elems elements.
  [[nodiscard]] Range shard(int rank) const noexcept;
  /// Returns the pieces of parameters among the elements `owned`, in order. Padding belongs to no
  /// piece.
  [[nodiscard]] std::vector<Piece> pieces(const Ranges& owned) const;
  /// Returns the pieces of parameters in the shard of `rank`. Throws ContractError if there is no
  /// such rank.
  [[nodiscard]] std::vector<Piece> pieces(int rank) const;
  /// Returns the elements that belong to no parameter: room, alignment gaps and the tail.
  [[nodiscard]] Ranges padding() const;

 private:
  SegmentDTypes dtypes_;
  bool trainable_;
  std::vector<Placement> placements_;
  std::int64_t elems_;
  int ranks_;
  std::int64_t shard_elems_;
  TensorKind tensor_;
};

/// The dtypes and the alignment of a unit's layout.
struct LayoutOptions {
  DType compute = DType::fp32;             ///< of parameters without ParameterSpec::dtype
  DType gradient = DType::fp32;            ///< of gradients
  DType reduce = DType::fp32;              ///< of gradients while they are reduced
  std::int64_t align_elems = kAlignElems;  ///< a multiple of kAlignElems
  TensorRank tensor = {};                  ///< the rank whose parts of cut parameters are laid out
};

/// The layout of one unit's parameters: a list of segments. It is the same for every strategy at a
/// given number of ranks and place along `tensor`. It is pure arithmetic.
class UnitLayout {
 public:
  /// Returns the layout of `specs`. Segments come in the order in which their (dtypes, trainable,
  /// TensorKind) combination first appears. Aliases (`tied_to`) take no place. Throws ContractError
  /// for an empty or repeated parameter name, a negative room, a cut that TensorPart refuses, a cut
  /// parameter with TensorGradient::part, an alignment that SegmentLayout refuses, ranks < 1, or
  /// more elements than 63 bits can count.
  static UnitLayout make(std::vector<ParameterSpec> specs, const LayoutOptions& options, int ranks);

  /// Returns the declared parameters, in the order of declaration.
  [[nodiscard]] std::span<const ParameterSpec> specs() const noexcept { return specs_; }
  /// Returns the segments of the unit.
  [[nodiscard]] std::span<const SegmentLayout> segments() const noexcept { return segments_; }
  /// Returns the number of ranks that the unit is cut for.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// The place of a parameter.
  struct Location {
    std::size_t segment;  ///< index of the segment
    std::int64_t first;   ///< first element in the segment
  };
  /// Returns the place of parameter `index`, or nothing for an alias. Throws ContractError if there
  /// is no such parameter.
  [[nodiscard]] std::optional<Location> locate(std::size_t index) const;
  /// Returns the index of the parameter called `name`, or nothing if there is none.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept;

  /// Returns this rank's part of parameter `index`. Throws ContractError if there is no such
  /// parameter.
  [[nodiscard]] const TensorPart& part(std::size_t index) const;
  /// Returns the number of elements of this rank's parts, without padding. Without a cut it is the
  /// number of parameters in the usual sense.
  [[nodiscard]] std::int64_t parameter_elems() const noexcept;
  /// Returns the number of distinct elements of the whole unit, over all ranks' parts.
  [[nodiscard]] std::int64_t whole_elems() const noexcept;
  /// Returns a layout of the same parameters without segments, for a rank that does not have the
  /// unit.
  [[nodiscard]] UnitLayout without_segments() const;
  /// Returns the layout as text, one line per entry. It is the same on every rank that declared the
  /// same unit, at any place along `tensor`. The engine compares it across ranks.
  [[nodiscard]] std::string describe() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<TensorPart> parts_;  // by parameter
  std::vector<SegmentLayout> segments_;
  LayoutOptions options_;
  int ranks_ = 1;
};

}  // namespace tessera
