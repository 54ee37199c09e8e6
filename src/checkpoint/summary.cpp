#include "checkpoint/reader.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

CheckpointSummary summary_of(const std::filesystem::path& path) {
  const CheckpointReader reader{path};
  const Manifest& manifest = reader.manifest();
  return {manifest.step, manifest.state, manifest.values};
}

void verify_weights(const std::filesystem::path& path) {
  CheckpointReader{path}.verify({}, "weight");
}

}  // namespace tessera
