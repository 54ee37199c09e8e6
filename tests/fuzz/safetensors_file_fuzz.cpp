// A whole safetensors file, opened and read.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::fuzz {
namespace {

// Reads the end of a tensor. A tensor of unknown dtype may have any number of elements without
// bytes.
void read_last(SafetensorsReader& reader, const std::string& name, const Shape& shape) {
  constexpr std::int64_t kMostElems = 1 << 16;
  std::vector<float> values(static_cast<std::size_t>(std::min(shape.elems(), kMostElems)));
  refuses<FormatError>([&] { reader.read(name, shape.elems() - std::ssize(values), values); });
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  fuzz::refuses<FormatError>([&] {
    SafetensorsReader reader{file.path()};
    for (const auto& [name, entry] : reader.entries()) {
      fuzz::holds(entry.first_byte + entry.bytes <= size, "a tensor lies in the file");
      fuzz::read_last(reader, name, entry.shape);
    }
  });
  return 0;
}
