#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/hub.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/train/run_values.hpp"

namespace tessera::tools {
namespace {

/// By default that of the largest weight: norms may have another.
DType dtype_of(const CheckpointReader& reader, const CheckpointSettings& settings) {
  std::string name = settings.dtype;
  std::int64_t most = 0;
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    if (!settings.dtype.empty() || tensor.role != "weight" || tensor.shape.elems() <= most) {
      continue;
    }
    most = tensor.shape.elems();
    name = tensor.dtype;
  }
  return name == "BF16" ? DType::bf16 : name == "F16" ? DType::fp16 : DType::fp32;
}

nn::HubConfig config_of(const CheckpointReader& reader) {
  const auto found = reader.manifest().values.find(std::string{kHubConfig});
  if (found == reader.manifest().values.end()) {
    throw ConfigError(fmt::format(
        "--hf: {} does not say what model it holds, since another program saved it, or its "
        "sizes are not those of a model of the hub; export it with --to",
        reader.folder().string()));
  }
  return nn::hub_config_of_text(found->second, reader.folder().string());
}

}  // namespace

void export_to_hub(const CheckpointReader& reader, const CheckpointSettings& settings) {
  nn::HubExportOptions options{.dtype = dtype_of(reader, settings)};
  if (settings.shard_bytes != 0) { options.shard_bytes = settings.shard_bytes; }
  const nn::HubConfig config = config_of(reader);
  try {
    nn::export_hub(settings.hub, config, weights_from(reader.folder(), nn::gpt2_weight_name),
                   options);
  } catch (const ConfigError& error) { throw ConfigError(fmt::format("--hf: {}", error.what())); }
  fmt::print("weights of step {} written to {}: a {} of {} parameters in {}\n",
             reader.manifest().step, settings.hub, config.family, config.decoder.parameter_elems(),
             to_string(options.dtype));
}

}  // namespace tessera::tools
