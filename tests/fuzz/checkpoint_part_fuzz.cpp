// part.json: one machine's part of a checkpoint, read, written and read again. The first byte
// selects whether the input is the text itself, or the text before the manifest and, after a zero
// byte, a manifest, to which the target adds the matching checksum.
#include <string>

#include "checkpoint/json_string.hpp"
#include "checkpoint/part.hpp"
#include "fuzz/fuzz.hpp"
#include "tessera/base/error.hpp"

namespace tessera::fuzz {
namespace {

std::string text_of_part(bool made, const std::string& rest) {
  if (!made) { return rest; }
  const std::size_t head = rest.find('\0');
  if (head == std::string::npos) { return rest; }
  const std::string manifest = rest.substr(head + 1);
  std::string text = rest.substr(0, head) + "\"manifest\": ";
  checkpoint::append_json_string(text, manifest + checkpoint::manifest_seal(manifest),
                                 "a manifest");
  return text + "}";
}

void check(const checkpoint::CheckpointPart& part) {
  holds(part.part >= 0 && part.part < part.parts, "a part is one of its parts");
  for (const checkpoint::PartRange& range : part.ranges) {
    const std::uint64_t file = part.manifest.files.at(range.file);
    holds(range.bytes > 0 && range.bytes <= file && range.first_byte <= file - range.bytes,
          "a range lies in its file");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const bool made = input.byte() % 2 == 1;
  const std::string rest{input.rest()};
  fuzz::refuses<FormatError>([&] {
    std::string text;
    try {
      text = fuzz::text_of_part(made, rest);
    } catch (const ContractError&) { return; }  // bytes that no manifest contains
    const checkpoint::CheckpointPart part = checkpoint::parse_part("input", text);
    fuzz::check(part);
    const std::string again = checkpoint::format_part(part);
    fuzz::holds(checkpoint::format_part(checkpoint::parse_part("again", again)) == again,
                "a part that was written reads as it was");
  });
  return 0;
}
