// Bytes on a connection of the control path give the same frames in any pieces. The first byte is
// the size of the pieces, the second the size limit of a frame.
#include <algorithm>
#include <vector>

#include "comm/control/tcp/frame.hpp"
#include "fuzz/fuzz.hpp"

namespace tessera::fuzz {
namespace {

struct Arrived {
  std::vector<comm::Frame> frames;
  bool accepted = true;
};

// Feeds arbitrary bytes to a coordinator's reader.
Arrived arrive(std::string_view bytes, std::size_t piece, std::size_t most_bytes) {
  Arrived all;
  comm::FrameReader reader{most_bytes};
  while (all.accepted && !bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    all.accepted = reader.add(next);
    comm::Frame frame;
    while (all.accepted && reader.next(frame)) { all.frames.push_back(frame); }
    all.accepted = all.accepted && reader.add({});
  }
  return all;
}

std::string bytes_of(const std::vector<comm::Frame>& frames) {
  std::string bytes;
  for (const comm::Frame& frame : frames) { comm::append(bytes, frame); }
  return bytes;
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  const std::size_t piece = 1U + input.byte();
  const std::size_t most_bytes = std::size_t{16} * input.byte();
  const std::string_view bytes = input.rest();
  const fuzz::Arrived whole =
      fuzz::arrive(bytes, std::max<std::size_t>(1, bytes.size()), most_bytes);
  const fuzz::Arrived pieces = fuzz::arrive(bytes, piece, most_bytes);
  const std::string frames = fuzz::bytes_of(whole.frames);
  fuzz::holds(bytes.starts_with(frames), "frames are what has arrived");
  fuzz::holds(frames == fuzz::bytes_of(pieces.frames), "frames do not depend on the pieces");
  fuzz::holds(whole.accepted == pieces.accepted, "what is refused does not depend on the pieces");
  for (const comm::Frame& frame : whole.frames) {
    fuzz::holds(frame.payload.size() <= most_bytes, "no frame holds more than it may");
  }
  return 0;
}
