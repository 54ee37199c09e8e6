#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Records of what a rank does, and the log of its work that plans use.
namespace tessera::trace {

/// The phases of a rank's program.
enum class Phase : std::uint8_t {
  setup,       ///< before the first forward scope: declaring, materialising
  forward,     ///< since a forward scope was opened
  backward,    ///< since a backward scope was opened
  update,      ///< since `step` was called: reducing the last gradients, the optimizer
  evaluation,  ///< while a model is evaluated
};

/// The number of phases.
inline constexpr std::size_t kPhases = 5;

/// Returns "setup", "forward", "backward", "update" or "evaluation".
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

/// The place of a rank in its program. The engine sets it, and records carry it.
struct Moment {
  Phase phase = Phase::setup;  ///< the rank's phase
  std::string unit;            ///< the unit of the scope, or empty
  std::int64_t step = 0;       ///< optimizer steps finished before

  friend bool operator==(const Moment&, const Moment&) = default;
};

}  // namespace tessera::trace
