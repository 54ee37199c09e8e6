#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/support/step.hpp"

namespace tessera::tools {

/// What `tessera bench` was asked for.
struct BenchSettings {
  /// "adamw", "offload", "checkpoint", "collectives", "machine", "products" or "step"; empty: print
  /// `text`.
  std::string what;
  std::string text;
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::int64_t widest = 0;  ///< model whose kernels are timed
  int repeat = 0;
  bool scaling = false;
  bool recording = false;
  bool features = false;
  bench::StepOptions step;
  bool prefetch_given = false;  ///< by the user
  std::string measuring;        ///< an option of measurements that the user gave
  std::string folder;           ///< in which files are written and read
  std::string from;             ///< figures of a device, instead of measuring
  std::string json;
};

/// What follows "bench" on the command line. ConfigError that says what to change.
[[nodiscard]] BenchSettings parse_bench(std::span<const char* const> arguments);

}  // namespace tessera::tools
