// A checkpoint's manifest, read, written and read again. The first byte selects whether the target
// adds the matching checksum, which no mutant would find.
#include <string>

#include "checkpoint/checksum.hpp"
#include "checkpoint/manifest.hpp"
#include "fuzz/fuzz.hpp"
#include "tessera/base/error.hpp"

namespace tessera::fuzz {
namespace {

void check(const Manifest& manifest) {
  holds(manifest.format == checkpoint::kCheckpointFormat && manifest.step >= 0,
        "the format is known");
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::uint64_t file = manifest.files.at(tensor.file);
    holds(tensor.bytes <= file && tensor.first_byte <= file - tensor.bytes,
          "a tensor lies in its file");
    const checkpoint::TensorSums sums{tensor.bytes, tensor.chunk_bytes};
    holds(tensor.sums.size() == sums.sums().size(), "each block has its checksum");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const bool sealed = input.byte() % 2 == 1;
  std::string text{input.rest()};
  if (sealed) { text += checkpoint::manifest_seal(text); }
  fuzz::refuses<FormatError>([&] {
    const Manifest manifest = checkpoint::parse_manifest("input", text);
    fuzz::check(manifest);
    const std::string again = checkpoint::format_manifest(manifest);
    fuzz::holds(checkpoint::format_manifest(checkpoint::parse_manifest("again", again)) == again,
                "a manifest that was written reads as it was");
  });
  return 0;
}
