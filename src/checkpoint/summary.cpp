#include "checkpoint/load_source.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera {

CheckpointSummary summary_of(const std::filesystem::path& path) {
  const auto source = checkpoint::open_checkpoint(path, LoadOptions::What::everything);
  const Manifest& manifest = source->manifest();
  return {manifest.step, manifest.state, manifest.values};
}

void verify_weights(const std::filesystem::path& path) {
  CheckpointReader{path, {Content::weights}}.verify();
}

}  // namespace tessera
