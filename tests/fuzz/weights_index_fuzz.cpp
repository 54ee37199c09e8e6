// The index of weights in several files.
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/weights_index.hpp"
#include "fuzz/fuzz.hpp"
#include "tessera/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::refuses<FormatError>([&] {
    const auto files = checkpoint::parse_index("input", fuzz::text_of(data, size));
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    for (const auto& [tensor, file] : files) {
      fuzz::holds(file.find('/') == std::string::npos && file != "..", "a file is in the folder");
      pairs.emplace_back(tensor, file);
    }
    fuzz::holds(
        checkpoint::parse_index("again", checkpoint::format_index(std::move(pairs), size)) == files,
        "an index that was written reads as it was");
  });
  return 0;
}
