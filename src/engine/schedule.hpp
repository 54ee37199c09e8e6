#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tessera::engine {

/// `evaluation` is a forward without a backward.
enum class Phase : std::uint8_t { forward, backward, evaluation };

[[nodiscard]] constexpr const char* to_string(Phase phase) noexcept {
  if (phase == Phase::evaluation) { return "evaluation"; }
  return phase == Phase::forward ? "forward" : "backward";
}

/// One opening of a unit.
struct Use {
  Phase phase = Phase::forward;
  std::size_t unit = 0;
  friend bool operator==(const Use&, const Use&) = default;
};

/// The order in which a micro-batch opens units: declared, or as the last one did it. Pure data.
///
/// `upcoming` is a prediction. A micro-batch that leaves the known order gets none from there on,
/// and becomes the known order when it ends. One that opens nothing leaves what is known as it is.
class Schedule {
 public:
  /// The known order is `forward`, then its reverse backward.
  void declare(std::span<const std::size_t> forward);

  void begin_micro_batch();
  void note(Use use);
  void end_micro_batch();

  /// The uses expected after the last noted one; empty if not known.
  [[nodiscard]] std::span<const Use> upcoming() const noexcept;
  /// The last complete micro-batch opened units in an order not known before; cleared by reading.
  [[nodiscard]] bool take_changed() noexcept;
  /// The most of the units of `counts` that are on their way back at once: from a unit's first
  /// backward use to its last, as the known order has them.
  [[nodiscard]] int most_pending(const std::function<bool(std::size_t unit)>& counts) const;
  [[nodiscard]] bool is_known() const noexcept { return !known_.empty(); }
  /// Units as the known order first opens them.
  [[nodiscard]] std::vector<std::size_t> units() const;
  /// That of an evaluation: the forward uses of this one.
  [[nodiscard]] Schedule evaluation() const;
  /// The known order, one "phase name" a line.
  [[nodiscard]] std::string describe(
      const std::function<std::string(std::size_t unit)>& name) const;

 private:
  std::vector<Use> known_;
  std::vector<Use> current_;
  bool on_track_ = false;
  bool changed_ = false;
};

}  // namespace tessera::engine
