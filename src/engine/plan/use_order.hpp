#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera::engine {

/// `read` is a use of parameters alone that no other use answers; `evaluation` is a forward without
/// a backward.
enum class UseKind : std::uint8_t { forward, backward, read, evaluation };

[[nodiscard]] constexpr const char* to_string(UseKind kind) noexcept {
  if (kind == UseKind::evaluation) { return "evaluation"; }
  if (kind == UseKind::read) { return "read"; }
  return kind == UseKind::forward ? "forward" : "backward";
}

/// One opening of a unit.
struct Use {
  UseKind kind = UseKind::forward;
  std::size_t unit = 0;
  int micro_batch = 0;  ///< of those of the round, from 0
  friend bool operator==(const Use&, const Use&) = default;
};

/// The order in which a round opens units: declared, or as the last one did it. A round is a
/// micro-batch, or several that are in flight together, or a pass of an evaluation. Pure data.
///
/// `upcoming` is a prediction. A round that leaves the known order gets none from there on, and
/// becomes the known order when it ends. One that opens nothing leaves what is known as it is.
class UseOrder {
 public:
  /// The known order is `forward`, then its reverse backward.
  void declare(std::span<const std::size_t> forward);

  void begin_round();
  void note(Use use);
  void end_round();

  /// The uses expected after the last noted one; empty if not known.
  [[nodiscard]] std::span<const Use> upcoming() const noexcept;
  /// The last complete round opened units in an order not known before; cleared by reading.
  [[nodiscard]] bool take_changed() noexcept;
  /// The most of the units of `counts` that are on their way back at once: from a unit's first
  /// backward use to its last, as the known order of one micro-batch has them.
  [[nodiscard]] int most_pending(const std::function<bool(std::size_t unit)>& counts) const;
  [[nodiscard]] bool is_known() const noexcept { return !known_.empty(); }
  /// Units as the known order first opens them.
  [[nodiscard]] std::vector<std::size_t> units() const;
  /// That of an evaluation: the forward uses of this one's first micro-batch.
  [[nodiscard]] UseOrder evaluation() const;
  /// The known order, one "phase name" a line; the round's later micro-batches with their numbers.
  [[nodiscard]] std::string describe(
      const std::function<std::string(std::size_t unit)>& name) const;

 private:
  std::vector<Use> known_;
  std::vector<Use> current_;
  bool on_track_ = false;
  bool changed_ = false;
};

}  // namespace tessera::engine
