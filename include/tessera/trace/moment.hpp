#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::trace {

/// What a rank is doing.
enum class Phase : std::uint8_t {
  setup,       ///< before the first forward scope: declaring, materialising
  forward,     ///< from a forward scope's opening on
  backward,    ///< from a backward scope's opening on
  update,      ///< from `step` on: reducing the last gradients, the optimizer
  evaluation,  ///< while a model is evaluated
};

inline constexpr std::size_t kPhases = 5;

/// "setup", "forward", "backward", "update", "evaluation".
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

/// Where in its program a rank is. Set by the engine; carried by what is recorded.
struct Moment {
  Phase phase = Phase::setup;
  std::string unit;       ///< the scope's, or empty
  std::int64_t step = 0;  ///< optimizer steps finished before

  friend bool operator==(const Moment&, const Moment&) = default;
};

}  // namespace tessera::trace
