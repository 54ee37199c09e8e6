#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera::engine {

/// `read` uses parameters only and has no matching use; `evaluation` is a forward without a
/// backward.
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
  int micro_batch = 0;  ///< number within the round, from 0
  friend bool operator==(const Use&, const Use&) = default;
};

/// The order in which a round opens units, as declared or as in the last round. A round is a
/// micro-batch, several micro-batches in flight together, or a pass of an evaluation. Pure data.
///
/// `upcoming` is a prediction. A round that leaves the known order gets no prediction from there
/// on, and becomes the known order when it ends. A round that opens nothing changes nothing.
class UseOrder {
 public:
  /// The known order is `forward`, then its reverse backward.
  void declare(std::span<const std::size_t> forward);

  void begin_round();
  void note(Use use);
  void end_round();

  /// The uses expected after the last noted one; empty if unknown.
  [[nodiscard]] std::span<const Use> upcoming() const noexcept;
  /// Whether the last complete round opened units in a new order; cleared by reading.
  [[nodiscard]] bool take_changed() noexcept;
  /// The most units, of those that `counts` accepts, whose gradients are pending at once: from a
  /// unit's first backward use to its last, in the known order of one micro-batch.
  [[nodiscard]] int most_pending(const std::function<bool(std::size_t unit)>& counts) const;
  /// The same for this round's micro-batch, if its backward uses mirror its forward uses so far.
  [[nodiscard]] int most_pending_now(const std::function<bool(std::size_t unit)>& counts,
                                     int micro_batch) const;
  [[nodiscard]] bool is_known() const noexcept { return !known_.empty(); }
  /// The units in the order in which the known order first opens them.
  [[nodiscard]] std::vector<std::size_t> units() const;
  /// The order of an evaluation: the forward uses of this order's first micro-batch.
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
