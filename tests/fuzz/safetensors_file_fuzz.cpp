// A whole safetensors file, opened and read.
#include <algorithm>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace {

// A tensor without bytes may have any number of elements, if its dtype is unknown.
constexpr std::int64_t kMostElems = 1 << 16;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  fuzz::refuses<FormatError>([&] {
    SafetensorsReader reader{file.path()};
    for (const auto& [name, entry] : reader.entries()) {
      fuzz::holds(entry.first_byte + entry.bytes <= size, "a tensor lies in the file");
      const std::int64_t elems = std::min(entry.shape.elems(), kMostElems);
      std::vector<float> values(static_cast<std::size_t>(elems));
      fuzz::refuses<FormatError>([&] { reader.read(name, entry.shape.elems() - elems, values); });
    }
  });
  return 0;
}
