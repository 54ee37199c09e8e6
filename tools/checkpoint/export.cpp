#include "tessera/checkpoint/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/noted_signals.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

void require_masters(const CheckpointReader& reader) {
  const bool has_some = std::ranges::any_of(reader.manifest().tensors, [](const auto& tensor) {
    return tensor.role == "master" || tensor.role == "remainder" ||
           (tensor.role == "weight" && tensor.dtype == "F32");
  });
  if (has_some) { return; }
  throw ConfigError(
      fmt::format("--masters: {} has no master weights, since its weights were trained as they "
                  "are; leave the option out",
                  reader.folder().string()));
}

WeightExport weights_of(const CheckpointReader& reader, const CheckpointSettings& settings) {
  if (settings.masters) { require_masters(reader); }
  ExportOptions options{.dtype = settings.dtype, .masters = settings.masters};
  if (settings.shard_bytes != 0) { options.shard_bytes = settings.shard_bytes; }
  try {
    return {reader, options};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--dtype: {}", error.what()));
  }
}

// Reads everything once more, before anything is written.
void require_range(const WeightExport& weights, const CheckpointSettings& settings) {
  weights.find_infinities([&](const std::string& found) {
    if (!settings.allows_infinities) {
      throw ConfigError(
          fmt::format("--dtype: {}, and would be infinite; use {}, or --allow-infinities to write "
                      "them so",
                      found, settings.dtype == "BF16" ? "fp32" : "bf16 or fp32"));
    }
    tell(fmt::format("warning: --dtype: {}, and are written as infinities\n", found));
  });
}

void prepare_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    throw ConfigError(
        fmt::format("--to: cannot make the folder {}: {}", folder.string(), failed.message()));
  }
}

class Interrupted {};

// A signal ends the export after a block, so that it leaves no temporary file.
WeightExport::Written write(const WeightExport& weights, const fs::path& to, bool to_file) {
  WeightExport::Written written;
  undisturbed([&] {
    ByteProgress bar{stdout, "export ", weights.bytes()};
    const auto progress = [&](std::uint64_t more) {
      if (NotedSignals::noted() != 0) { throw Interrupted{}; }
      bar.add(more);
    };
    try {
      written = to_file ? weights.to_file(to, progress) : weights.to_folder(to, progress);
    } catch (const Interrupted&) {  // the signal ends the process
    } catch (const ConfigError& error) { throw ConfigError(fmt::format("--to: {}", error.what())); }
  });
  return written;
}

}  // namespace

void export_checkpoint(const CheckpointSettings& settings) {
  // Damage to other files does not prevent an export.
  Contents contents{Content::weights};
  if (settings.masters) { contents.insert(Content::masters); }
  const CheckpointReader reader{checkpoint_at(settings.paths.front(), LoadOptions::What::weights),
                                contents};
  if (!settings.hub.empty()) { return export_to_hub(reader, settings); }
  const WeightExport weights = weights_of(reader, settings);
  const bool to_file = settings.to.ends_with(".safetensors");
  require_range(weights, settings);
  if (!to_file) { prepare_folder(settings.to); }

  const WeightExport::Written written = write(weights, settings.to, to_file);
  fmt::print("{} weights of step {} written to {} ({} in {} file{})\n", weights.weights(),
             reader.manifest().step, settings.to, format_bytes(written.bytes), written.files,
             written.files == 1 ? "" : "s");
}

}  // namespace tessera::tools
