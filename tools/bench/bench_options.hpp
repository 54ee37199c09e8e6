#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/measure/step.hpp"

namespace tessera::tools {

/// The request of a `tessera bench` command.
struct BenchSettings {
  /// "adamw", "offload", "checkpoint", "collectives", "machine", "products" or "step". Empty: print
  /// `text`.
  /// `text`.
  std::string what;
  std::string text;
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::int64_t widest = 0;  ///< width of the largest model whose kernels are timed
  int repeat = 0;
  bool scaling = false;
  bool recording = false;
  bool features = false;
  bench::StepOptions step;
  bool prefetch_given = false;  ///< whether the user typed --prefetch
  std::string measuring;        ///< an option of measurements that the user typed
  std::string folder;           ///< for files that are written and read
  std::string from;             ///< figures of a device to use instead of measuring
  std::string json;
};

/// Parses the arguments after "bench". ConfigError that says what to change.
[[nodiscard]] BenchSettings parse_bench(std::span<const char* const> arguments);

}  // namespace tessera::tools
