#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tools/checkpoint/checkpoint_options.hpp"

namespace tessera::tools {

/// `tessera checkpoint`: `arguments` follow the word "checkpoint".
void run_checkpoint(std::span<const char* const> arguments);

/// The folder of the checkpoint at `path`: `path` itself, or the run's newest checkpoint of which
/// `what` can be read. Reports newer, damaged ones on standard error.
[[nodiscard]] std::filesystem::path checkpoint_at(
    const std::string& path, LoadOptions::What what = LoadOptions::What::everything);

void list_checkpoints(const CheckpointSettings& settings);
void inspect_checkpoint(const CheckpointSettings& settings);
void verify_checkpoint(const CheckpointSettings& settings);
/// Throws Ended with status 1 if they differ.
void diff_checkpoints(const CheckpointSettings& settings);
void export_checkpoint(const CheckpointSettings& settings);
/// Writes the weights of `reader` to the folder of --hf, in the hub's format. ConfigError for a
/// checkpoint that does not say what model it holds.
void export_to_hub(const CheckpointReader& reader, const CheckpointSettings& settings);
void merge_checkpoints(const CheckpointSettings& settings);

}  // namespace tessera::tools
