// The JSON header of a safetensors file and the positions of its tensors. The first two bytes are
// the number of data bytes after the header.
#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_header.hpp"
#include "fuzz/fuzz.hpp"

namespace tessera::fuzz {
namespace {

// Expects the tensors to fill the file from the end of the header without gaps.
void check_places(const checkpoint::SafetensorsEntries& entries, std::uint64_t begin,
                  std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const auto& [name, entry] : entries) {
    places.emplace_back(entry.first_byte, entry.bytes);
    holds(entry.shape.elems() >= 0, "a tensor has no fewer than 0 elements");
  }
  std::sort(places.begin(), places.end());
  for (const auto& [first, bytes] : places) {
    holds(first == begin, "a tensor begins where the one before it ends");
    holds(bytes <= end - begin, "a tensor lies in the file");
    begin += bytes;
  }
  holds(begin == end, "the tensors fill the file");
}

// The writer's header for these names and shapes reads back unchanged.
void check_round_trip(const checkpoint::SafetensorsEntries& entries) {
  std::vector<checkpoint::HeaderTensor> declared;
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : entries) {
    if (!checkpoint::dtype_bytes(entry.dtype) || name.empty()) { continue; }
    declared.push_back({name, entry.dtype, &entry.shape});
    bytes += entry.bytes;
  }
  const std::string text = checkpoint::format_header(declared);
  const std::string_view header = std::string_view{text}.substr(checkpoint::kLengthBytes);
  const checkpoint::SafetensorsEntries again =
      checkpoint::parse_header("again", header, text.size() + bytes);
  holds(again.size() == declared.size(), "every tensor that was written is read");
  for (const auto& each : declared) {
    const auto& read = again.at(std::string{each.name});
    holds(read.shape == *each.shape, "a tensor is read with the shape it was given");
    holds(read.dtype == each.dtype, "a tensor is read with the dtype it was given");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const std::uint64_t low = input.byte();
  const std::uint64_t data_bytes = low + std::uint64_t{256} * input.byte();
  const std::string_view header = input.rest();
  const std::uint64_t begin = checkpoint::kLengthBytes + header.size();
  fuzz::refuses<FormatError>([&] {
    const auto entries = checkpoint::parse_header("input", header, begin + data_bytes);
    fuzz::check_places(entries, begin, begin + data_bytes);
    fuzz::check_round_trip(entries);
  });
  return 0;
}
