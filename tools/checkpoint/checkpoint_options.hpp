#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::tools {

/// The request of a `tessera checkpoint` command.
struct CheckpointSettings {
  std::string what;  ///< "list", "inspect", "verify", "diff", "export" or "merge"; empty: print
                     ///< `text`
  std::string text;
  std::vector<std::string> paths;
  std::string json;
  std::string to;
  std::string hub;    ///< the folder to write in the hub's format, in place of `to`
  std::string dtype;  ///< "F32", "BF16", "F16"; empty: as in the checkpoint
  bool masters = false;
  bool allows_infinities = false;  ///< for values that `dtype` cannot hold
  std::uint64_t shard_bytes = 0;
};

/// Parses the arguments after "checkpoint". ConfigError that says what to change.
[[nodiscard]] CheckpointSettings parse_checkpoint(std::span<const char* const> arguments);

}  // namespace tessera::tools
