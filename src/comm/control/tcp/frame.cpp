#include "comm/control/tcp/frame.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

// "TSR2": the version of this frame format. It reads differently on a machine of another byte
// order.
constexpr std::uint32_t kMagic = 0x32525354;

struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t type = 0;
  std::uint16_t call = 0;
  std::uint64_t sequence = 0;
  std::int32_t rank = 0;
  std::uint32_t bytes = 0;
  std::uint64_t group = 0;
};
static_assert(std::has_unique_object_representations_v<Header>);

}  // namespace

// Appends all of it or, without memory, nothing: earlier frames must arrive whole.
void append(std::string& out, const Frame& frame) {
  out.reserve(out.size() + sizeof(Header) + frame.payload.size());
  const Header header{.type = static_cast<std::uint16_t>(frame.type),
                      .call = static_cast<std::uint16_t>(frame.call.kind),
                      .sequence = frame.sequence,
                      .rank = frame.rank,
                      .bytes = static_cast<std::uint32_t>(frame.payload.size()),
                      .group = frame.call.group};
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  out += frame.payload;
}

bool FrameReader::add(std::string_view arrived) {
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_ += arrived;
  return acceptable();
}

/// Checks as much of the first frame as is visible.
bool FrameReader::acceptable() const noexcept {
  const std::size_t there = bytes_.size() - begin_;
  Header header;
  if (std::memcmp(bytes_.data() + begin_, &header, std::min(there, sizeof header.magic)) != 0) {
    return false;
  }
  if (there < sizeof header) { return true; }
  std::memcpy(&header, bytes_.data() + begin_, sizeof header);
  return header.bytes <= most_bytes_ &&
         header.type <= static_cast<std::uint16_t>(FrameType::known) && header.call < kCallKinds;
}

bool FrameReader::next(Frame& frame) {
  const std::size_t there = bytes_.size() - begin_;
  Header header;
  if (there < sizeof header || !acceptable()) { return false; }
  std::memcpy(&header, bytes_.data() + begin_, sizeof header);
  if (there < sizeof header + header.bytes) { return false; }
  frame.type = static_cast<FrameType>(header.type);
  frame.call = {static_cast<CallKind>(header.call), header.group};
  frame.sequence = header.sequence;
  frame.rank = header.rank;
  frame.payload.assign(bytes_, begin_ + sizeof header, header.bytes);
  begin_ += sizeof header + header.bytes;
  return true;
}

PayloadWriter& PayloadWriter::number(std::int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_ += value;
  return *this;
}

std::string_view PayloadReader::take(std::size_t bytes) {
  if (bytes > bytes_.size()) { throw CommError{"a message between ranks was cut short"}; }
  const std::string_view taken = bytes_.substr(0, bytes);
  bytes_.remove_prefix(bytes);
  return taken;
}

std::int64_t PayloadReader::number() {
  std::int64_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

std::string PayloadReader::text() {
  const std::int64_t bytes = number();
  if (bytes < 0) { throw CommError{"a message between ranks was cut short"}; }
  return std::string{take(static_cast<std::size_t>(bytes))};
}

}  // namespace tessera::comm
